"""What an agent must do about what happened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from croupier.agent.core.records import Record
from croupier.agent.core.tasks import Key
from croupier.model.task import TaskStatus


class Force(Enum):
    """How a task's processes are told to end."""

    ASK = "SIGTERM"
    MAKE = "SIGKILL"


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
class Introduce:
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
class Dismiss:
    """What is kept of the run need not be kept: its end is durable, or of no interest."""

    key: Key
    run: str


@dataclass(frozen=True, slots=True)
class Forget:
    """The task is no more: nothing will be said about it again."""

    key: Key


Effect = (
    Checkpoint
    | Introduce
    | SendUpdates
    | Moved
    | Acknowledged
    | Outdated
    | Spawn
    | Adopt
    | Signal
    | Dismiss
    | Forget
)
