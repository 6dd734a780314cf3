"""What an agent must do about what happened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from croupier.agent.core.records import Record
from croupier.agent.core.tasks import Key
from croupier.model.health import Problem
from croupier.model.task import TaskStatus


class Force(Enum):
    """How a task's processes are told to end."""

    TERMINATE = "SIGTERM"
    KILL = "SIGKILL"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Make the record durable before any other effect of the same batch is performed.

    Attributes:
        lazy: nothing is lost but time if it is not durable when the agent dies: it may wait
            for the next one that is not lazy.
    """

    record: Record
    lazy: bool = False


@dataclass(frozen=True, slots=True)
class SendRegister:
    """Open the session with REGISTER: everything the state holds, as it is now."""

    session: int


@dataclass(frozen=True, slots=True)
class SendUpdates:
    """Send updates of one task in the session, unless it is over by now."""

    session: int
    statuses: tuple[TaskStatus, ...]
    again: bool = False
    """Whether they were sent before."""


@dataclass(frozen=True, slots=True)
class RefuseLaunch:
    """Tell the master in the session that the agent does not take the task.

    The agent remembers nothing of it: the master records the end and tells the framework, or
    orders the launch again if the session ends before that.
    """

    session: int
    key: Key
    message: str


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """Tell the master, logs and metrics what keeps the agent from launching tasks.

    Attributes:
        session: None if no master listens; REGISTER then carries the problems.
        problems: empty if the agent is healthy again.
    """

    session: int | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class CheckHealth:
    """Look for problems, and answer with `HealthChecked`. It replaces a request that waits.

    Attributes:
        within_s: the check begins within so many seconds. A thorough one takes at least half
            of the time, drawn by chance, so that agents that share a problem do not go in step.
        is_thorough: also make missing directories again, and start a process on trial.
    """

    within_s: float
    is_thorough: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """A fact, for logs and metrics: a task is in a new state."""

    status: TaskStatus


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A fact, for metrics: so many updates need not be kept any longer."""

    count: int


@dataclass(frozen=True, slots=True)
class Outdated:
    """A fact, for logs and metrics: an order of an older run of its framework was refused."""

    key: Key
    framework_epoch: int


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start the task's process as the run of that name.

    Answer with `Started` or `LaunchFailed`; with `NotStarted` if by then the state does not
    want the process any more.

    Attributes:
        again: an earlier life may have begun to, and have left a sandbox in which nothing ran.
    """

    key: Key
    run: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Adopt:
    """Find out what became of a run of an earlier life of the agent.

    Answer with `Adopted`, `Exited`, `LaunchFailed` or `Vanished`.
    """

    key: Key
    run: str


@dataclass(frozen=True, slots=True)
class Signal:
    """Tell the processes of a task to end; `pid` is its first, which may be over."""

    key: Key
    pid: int
    force: Force


@dataclass(frozen=True, slots=True)
class ForgetRun:
    """What is kept of the run need not be kept: its end is durable, or of no interest."""

    key: Key
    run: str


@dataclass(frozen=True, slots=True)
class Forget:
    """The task is no more: nothing will be said about it again."""

    key: Key


Effect = (
    Checkpoint
    | SendRegister
    | SendUpdates
    | RefuseLaunch
    | HealthChanged
    | CheckHealth
    | Moved
    | Acknowledged
    | Outdated
    | Spawn
    | Adopt
    | Signal
    | ForgetRun
    | Forget
)
