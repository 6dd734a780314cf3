"""Events: everything that changes the state of an agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from croupier.agent.core.effects import Spawn
from croupier.agent.core.tasks import Key
from croupier.model.agent_orders import LaunchTask, TaskOrder
from croupier.model.health import Problem
from croupier.model.ids import AgentId, TaskId
from croupier.model.isolation import Usage
from croupier.model.secrets import NO_SECRETS, SecretValues
from croupier.model.store_position import StorePosition
from croupier.model.task import Reason, TaskState


@dataclass(frozen=True, slots=True)
class Exceeded:
    """The limit that a task has exceeded, of memory or disk, and its peak, for people."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Ending:
    """Measurements of a run that has ended.

    Attributes:
        usage: None if it was not measured.
        exceeded: the limit for which processes of the task were killed, if there is one.
        notes: limits that it met without losing a process, for people.
    """

    usage: Usage | None = None
    exceeded: Exceeded | None = None
    notes: tuple[str, ...] = ()


NO_ENDING: Final = Ending()


class Now(NamedTuple):
    """The time of an event.

    Attributes:
        at: seconds on the agent's monotonic clock, which all decisions use.
        wall_ms: milliseconds since 1970, for people.
    """

    at: float
    wall_ms: int


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """The first event of each life, on a new state and on a recovered one."""


@dataclass(frozen=True, slots=True)
class DiskFull:
    """The disk has no room left for records of new tasks."""


@dataclass(frozen=True, slots=True)
class HealthChecked:
    """The answer to `CheckHealth`, with at most one problem for each part."""

    problems: tuple[Problem, ...]
    is_thorough: bool = False


@dataclass(frozen=True, slots=True)
class Connected:
    """A stream to a master is open; session numbers increase."""

    session: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The stream has ended."""

    session: int


@dataclass(frozen=True, slots=True)
class MasterSeen:
    """A message showed a newer master. This comes before the orders of that message."""

    master_epoch: int
    cluster: str = ""
    position: StorePosition | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """The master has registered the agent."""

    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class Removed:
    """The master has removed the agent: its id and all its tasks are void."""


@dataclass(frozen=True, slots=True)
class TaskLaunch:
    """A launch of a task.

    Attributes:
        secrets: the values of its secrets, which are in no other event and in no record.
        has_sandbox: whether it has a sandbox already.
    """

    order: LaunchTask
    secrets: SecretValues = NO_SECRETS
    has_sandbox: bool = False


@dataclass(frozen=True, slots=True)
class GroupLaunch:
    """A launch of all tasks of a group, or of none."""

    launches: tuple[TaskLaunch, ...]


@dataclass(frozen=True, slots=True)
class Started:
    """An answer to `Spawn`: the process runs."""

    key: Key
    pid: int


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """An answer to `Spawn` and `Adopt`: the process could not be started.

    Attributes:
        message: for the framework.
        exit_code: as in a shell: 127 if the program was not found, 126 if it cannot be run; None
            if it was not tried.
        cause: what failed on the agent; empty if the task or its command is at fault.
    """

    key: Key
    message: str
    exit_code: int | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class NotStarted:
    """An answer to `Spawn`: the process was no longer wanted."""

    key: Key


@dataclass(frozen=True, slots=True)
class Prepared:
    """An answer to `Spawn`: what the task needs is on the machine now; start it."""

    spawn: Spawn


@dataclass(frozen=True, slots=True)
class Adopted:
    """An answer to `Adopt`: the process lives, and is watched.

    Attributes:
        age_s: the time since its start, which changes of the wall clock do not affect; None if
            unknown.
    """

    key: Key
    pid: int
    age_s: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Vanished:
    """An answer to `Adopt`: the run has ended in an unknown way.

    Attributes:
        reason: for tests and logs.
        never_started: no process was ever started for the run.
        ending: what its isolators know.
    """

    key: Key
    reason: str
    never_started: bool = False
    ending: Ending = NO_ENDING


@dataclass(frozen=True, slots=True)
class Exited:
    """The task's process and all its descendants have ended.

    Attributes:
        exit_code: set if the process exited.
        signal: set if a signal ended it.
        unknown: how it ended is unknown, because its shim was killed.
        ending: what its isolators know.
    """

    key: Key
    exit_code: int | None = None
    signal: int | None = None
    unknown: bool = False
    ending: Ending = NO_ENDING


@dataclass(frozen=True, slots=True)
class LimitExceeded:
    """A run exceeds a limit now, and is to be killed. Repeated until it has ended."""

    key: Key
    run: str
    exceeded: Exceeded


@dataclass(frozen=True, slots=True)
class ExecutorRegistered:
    """An executor has registered on a new stream, and listed its tasks; connections count up."""

    key: Key
    connection: int
    listed: frozenset[TaskId]


@dataclass(frozen=True, slots=True)
class ExecutorLeft:
    """The stream of an executor has ended."""

    key: Key
    connection: int


@dataclass(frozen=True, slots=True)
class ExecutorUpdated:
    """An executor reports on one of its tasks, perhaps again.

    Attributes:
        key: of the executor.
        update_id: names the update. Those of Croupier's own API rise; those of Mesos are random.
    """

    key: Key
    connection: int
    task_id: TaskId
    state: TaskState
    update_id: bytes
    message: str = ""
    data: bytes = b""
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ExecutorSaid:
    """An executor has sent a message to its framework."""

    key: Key
    connection: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A request to stop the daemon after its tasks have ended."""


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The earliest deadline of the state has passed."""


TaskEvent = (
    TaskOrder
    | TaskLaunch
    | GroupLaunch
    | Started
    | Adopted
    | NotStarted
    | Prepared
    | LaunchFailed
    | Exited
    | LimitExceeded
)
ExecutorEvent = ExecutorRegistered | ExecutorLeft | ExecutorUpdated | ExecutorSaid
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
    | Vanished
)
Event = TaskEvent | ExecutorEvent | AgentEvent
