"""What an agent remembers over its own death: facts in the order in which they came to be.

Rule: `recovered` of all records gives the state back as far as it matters, and a record whose
place is taken by a later one need not be kept. So what is kept is bounded by what is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from croupier.agent.core.tasks import Key
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.store_position import StorePosition
from croupier.model.task import Reason, TaskInfo, TaskStatus


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """The agent itself; each replaces the one before.

    Attributes:
        agent_id: empty until it has named itself.
        boot_id: of the machine's run; empty if it does not tell.
        master_epoch: the newest master that was heard, in `cluster`.
        incomplete: records were lost, and no master was told yet.
    """

    agent_id: AgentId
    boot_id: str
    master_epoch: int
    incomplete: bool = False
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class PositionRecord:
    """The newest position of the master's store that was heard; each replaces the one before."""

    position: StorePosition


@dataclass(frozen=True, slots=True)
class FrameworkRecord:
    """The newest run of a framework's program that was heard."""

    framework_id: FrameworkId
    epoch: int


@dataclass(frozen=True, slots=True)
class ForgetFramework:
    """So many frameworks were heard since that this one need not be remembered."""

    framework_id: FrameworkId


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task is known from now on, with its first update.

    Attributes:
        run: names what becomes of its process; empty if it is not to have one.
    """

    info: TaskInfo
    role: Role
    run: str
    first: TaskStatus

    @property
    def key(self) -> Key:
        """Whose it is."""
        return (self.first.framework_id, self.first.task_id)


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """One more update of a task that is known."""

    status: TaskStatus

    @property
    def key(self) -> Key:
        """Whose it is."""
        return (self.status.framework_id, self.status.task_id)


@dataclass(frozen=True, slots=True)
class KillRecord:
    """A task is to end."""

    framework_id: FrameworkId
    task_id: TaskId
    grace_ms: int
    reason: Reason

    @property
    def key(self) -> Key:
        """Whose it is."""
        return (self.framework_id, self.task_id)


@dataclass(frozen=True, slots=True)
class AcknowledgedRecord:
    """The framework has the task's updates up to and with `sequence`."""

    framework_id: FrameworkId
    task_id: TaskId
    sequence: int

    @property
    def key(self) -> Key:
        """Whose it is."""
        return (self.framework_id, self.task_id)


@dataclass(frozen=True, slots=True)
class VoidRecord:
    """A removal has made the task void; its process is to be killed and nobody told."""

    framework_id: FrameworkId
    task_id: TaskId

    @property
    def key(self) -> Key:
        """Whose it is."""
        return (self.framework_id, self.task_id)


@dataclass(frozen=True, slots=True)
class ForgetTask:
    """Nothing of the task is to be known any longer."""

    framework_id: FrameworkId
    task_id: TaskId

    @property
    def key(self) -> Key:
        """Whose it is."""
        return (self.framework_id, self.task_id)


TaskFact = TaskRecord | UpdateRecord | KillRecord | AcknowledgedRecord | VoidRecord | ForgetTask
Record = (
    AgentRecord
    | PositionRecord
    | FrameworkRecord
    | ForgetFramework
    | TaskRecord
    | UpdateRecord
    | KillRecord
    | AcknowledgedRecord
    | VoidRecord
    | ForgetTask
)

# Whose a record is, and which of the subject's records it replaces.
Place = tuple[str, str]


def place_of(record: Record) -> Place:
    """Where a record belongs: one of the same place takes over from it.

    A `ForgetTask` or `ForgetFramework` takes over from everything of its subject, itself
    included.
    """
    match record:
        case AgentRecord():
            return "", ""
        case PositionRecord():
            return "", "position"
        case FrameworkRecord(framework_id) | ForgetFramework(framework_id):
            return framework_id, ""
        case UpdateRecord(status):
            return subject_of(record.key), str(status.sequence)
        case _:
            return subject_of(record.key), type(record).__name__


def subject_of(key: Key) -> str:
    """What names a task among everything that has records; no id holds a blank."""
    return f"{key[0]} {key[1]}"


def forgets(record: Record) -> bool:
    """Whether the record takes over from all of its subject."""
    return isinstance(record, ForgetTask | ForgetFramework)
