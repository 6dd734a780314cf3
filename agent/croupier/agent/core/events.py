"""What can happen to an agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from croupier.agent.core.tasks import Key
from croupier.model.agent_orders import LaunchTask, TaskOrder
from croupier.model.health import Problem
from croupier.model.ids import AgentId
from croupier.model.store_position import StorePosition


class Now(NamedTuple):
    """When something happened.

    Attributes:
        at: seconds on the agent's monotonic clock; everything is decided on this one.
        wall_ms: milliseconds since the epoch, for people.
    """

    at: float
    wall_ms: int


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """The agent's life begins: the first event of all, on a new state and on a recovered one."""


@dataclass(frozen=True, slots=True)
class DiskFull:
    """The disk has no room for records of new tasks."""


@dataclass(frozen=True, slots=True)
class HealthChecked:
    """The answer to `CheckHealth`.

    Attributes:
        problems: what keeps the agent from launching tasks, at most one for each part.
        is_thorough: whether the check was a thorough one.
    """

    problems: tuple[Problem, ...]
    is_thorough: bool = False


@dataclass(frozen=True, slots=True)
class Connected:
    """A stream to a master is open; sessions are numbered upwards."""

    session: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The stream is over."""

    session: int


@dataclass(frozen=True, slots=True)
class MasterSeen:
    """A master spoke: of which epoch and cluster. It comes before what that master says.

    Attributes:
        position: how far the master's store is; None if it does not say that.
    """

    master_epoch: int
    cluster: str = ""
    position: StorePosition | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """The master has taken the agent in, under this id.

    Attributes:
        takes_refusals: whether this master knows what a refused launch is.
    """

    agent_id: AgentId
    takes_refusals: bool = True


@dataclass(frozen=True, slots=True)
class Removed:
    """The master has removed the agent for good: its id and all its tasks are void."""


@dataclass(frozen=True, slots=True)
class LaunchIntoSandbox:
    """A launch of a task that has a sandbox already."""

    order: LaunchTask


@dataclass(frozen=True, slots=True)
class Started:
    """The task's process runs."""

    key: Key
    pid: int


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """There is no process, and why.

    Attributes:
        message: for the framework.
        exit_code: what a shell would exit with: 127 for a program that was not found, 126 for one
            that cannot be run; None if the program was not tried.
        cause: what failed on the agent; empty if the task or its command is at fault.
    """

    key: Key
    message: str
    exit_code: int | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The process was not started, since it was not wanted any more."""

    key: Key


@dataclass(frozen=True, slots=True)
class Adopted:
    """The process of an earlier life's run lives, and is watched."""

    key: Key
    pid: int


@dataclass(frozen=True, slots=True)
class Vanished:
    """An earlier life's run is over, and nobody knows how it ended.

    Attributes:
        reason: what was found, for the framework.
        never_started: nothing of it ever ran, as far as one can see.
    """

    key: Key
    reason: str
    never_started: bool = False


@dataclass(frozen=True, slots=True)
class Exited:
    """The task's process has ended, and everything that it left behind with it.

    Attributes:
        exit_code: set if it ended by itself.
        signal: set if a signal ended it.
        unknown: nobody knows how it ended, for whoever watched it was killed.
    """

    key: Key
    exit_code: int | None = None
    signal: int | None = None
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The daemon is to end, and its tasks before it."""


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The earliest deadline has come."""


TaskEvent = TaskOrder | LaunchIntoSandbox | Started | NotStarted | LaunchFailed | Exited
AgentEvent = (
    AgentStarted
    | StopRequested
    | DeadlinePassed
    | DiskFull
    | HealthChecked
    | Connected
    | Disconnected
    | MasterSeen
    | Registered
    | Removed
    | Adopted
    | Vanished
)
Event = TaskEvent | AgentEvent
