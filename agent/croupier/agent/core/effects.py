"""Effects: what the agent must do after an event."""

from __future__ import annotations

from dataclasses import dataclass
from signal import Signals
from typing import Literal

from croupier.agent.core.records import Record
from croupier.agent.core.tasks import GroupKey, Key
from croupier.model.agent_orders import ExecutorMessage, SetVolume
from croupier.model.health import Problem
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.secrets import NO_SECRETS, SecretValues
from croupier.model.task import TaskInfo, TaskStatus


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Make the record durable before any other effect of the same batch is performed.

    Attributes:
        lazy: the record may wait for the next one that is not lazy; losing it costs only time.
    """

    record: Record
    lazy: bool = False


@dataclass(frozen=True, slots=True)
class SendRegister:
    """Open the session with REGISTER, made of the current state."""

    session: int


@dataclass(frozen=True, slots=True)
class SendUpdates:
    """Send updates of one task in the session, perhaps again, unless it has ended.

    Attributes:
        may_wait: a short wait is better than a message of their own, since the task may end at
            once. Their records may be lazy; those of all other updates are durable with the batch.
    """

    session: int
    statuses: tuple[TaskStatus, ...]
    again: bool = False
    may_wait: bool = False


@dataclass(frozen=True, slots=True)
class RefuseLaunch:
    """Refuse a launch in the session.

    The agent records nothing. The master records the end and reports it to the framework, or
    orders the launch again if the session ends before that.
    """

    session: int
    key: Key
    message: str


@dataclass(frozen=True, slots=True)
class ReturnTasks:
    """Tell the master in the session that lined-up tasks have not started, and never will."""

    session: int
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """Report the agent's problems, none if it is healthy again, to the master, logs and metrics.

    Without a session, REGISTER of the next one carries them.
    """

    session: int | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class CheckHealth:
    """Look for problems, and answer with `HealthChecked`. This replaces a request that waits.

    Attributes:
        within_s: the check begins within this time. A thorough one begins at a random time in
            the second half of it, so that agents with a common problem spread their checks.
        is_thorough: also recreate missing directories, and start a trial process.
    """

    within_s: float
    is_thorough: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """A fact for logs and metrics: a task changed its state."""

    status: TaskStatus


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A fact for metrics: updates were acknowledged."""

    count: int


@dataclass(frozen=True, slots=True)
class Outdated:
    """A fact for logs and metrics: a kill with an old framework epoch was refused."""

    key: Key
    framework_epoch: int


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start the task's process as the run of that name.

    Answer with `Started` or `LaunchFailed`, or with `NotStarted` if the state no longer wants the
    process; with `Prepared` if the machine had to fetch the task's image first.

    Attributes:
        again: an earlier life may have left a sandbox in which nothing ran, or an earlier run of a
            requeued task its own.
        secrets: values for the task; the agent stores them nowhere else.
    """

    key: Key
    run: str
    again: bool = False
    secrets: SecretValues = NO_SECRETS


@dataclass(frozen=True, slots=True)
class CancelLaunch:
    """Stop a launch that waits for an image, and answer its `Spawn` with `NotStarted`.

    No effect on one that no longer waits: its answer is on the way.
    """

    key: Key


@dataclass(frozen=True, slots=True)
class Adopt:
    """Look for a run of an earlier life.

    Answer with `Adopted`, `Exited`, `LaunchFailed` or `Vanished`.
    """

    key: Key
    run: str


@dataclass(frozen=True, slots=True)
class Signal:
    """Signal the processes of a task; the first one, `pid`, may have ended."""

    key: Key
    pid: int
    number: Signals


@dataclass(frozen=True, slots=True)
class Welcome:
    """For an executor: it is registered as this task of the framework."""

    framework_id: FrameworkId
    agent_id: AgentId
    info: TaskInfo


@dataclass(frozen=True, slots=True)
class RunTask:
    """For an executor: run this task."""

    info: TaskInfo


@dataclass(frozen=True, slots=True)
class EndTask:
    """For an executor: end this task within the grace."""

    task_id: TaskId
    grace_ms: int


@dataclass(frozen=True, slots=True)
class UpdateDurable:
    """For an executor: its update of this name need not be sent again."""

    task_id: TaskId
    update_id: bytes


@dataclass(frozen=True, slots=True)
class Said:
    """For an executor: a message of its framework."""

    data: bytes


@dataclass(frozen=True, slots=True)
class ShutDown:
    """For an executor: end all tasks, and then itself, within the grace."""

    grace_ms: int


@dataclass(frozen=True, slots=True)
class ToExecutor:
    """Send a message on a stream of an executor; no effect if the stream has ended."""

    connection: int
    message: Welcome | RunTask | EndTask | UpdateDurable | Said | ShutDown


@dataclass(frozen=True, slots=True)
class CloseExecutor:
    """End a stream of an executor, with an error for it."""

    connection: int
    message: str


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send a message of an executor to its framework in the session, once."""

    session: int
    message: ExecutorMessage


@dataclass(frozen=True, slots=True)
class Dropped:
    """A fact for metrics: a message, or news of a task, was dropped."""

    what: Literal["to_framework", "to_executor", "update"]


@dataclass(frozen=True, slots=True)
class ForgetRun:
    """Remove the files of a run: its end is durable, or not needed."""

    key: Key
    run: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Release the sandbox of a task that the agent has forgotten."""

    key: Key


@dataclass(frozen=True, slots=True)
class ForgetGroup:
    """Remove the directory of a group, once the agent has forgotten all its tasks."""

    group: GroupKey


Effect = (
    Checkpoint
    | SendRegister
    | SendUpdates
    | RefuseLaunch
    | ReturnTasks
    | HealthChanged
    | CheckHealth
    | Moved
    | Acknowledged
    | Outdated
    | Spawn
    | CancelLaunch
    | Adopt
    | Signal
    | ToExecutor
    | CloseExecutor
    | SendMessage
    | Dropped
    | ForgetRun
    | Forget
    | ForgetGroup
    | SetVolume
)


def is_urgent(effect: Effect) -> bool:
    """Return whether all records must be durable before the effect is performed."""
    match effect:
        case Checkpoint():
            return not effect.lazy
        case SendUpdates():
            return not effect.may_wait
        case _:
            # REGISTER carries every update.
            return isinstance(effect, SendRegister)
