"""Records of the checkpoint: the state of an agent that survives its process, in order.

Rule: `recovered` rebuilds the state from all records. A record may be dropped once a later record
has the same place, and that of an update once it is acknowledged and not the latest. So the size of
a checkpoint is bounded by the size of the state.
"""

from __future__ import annotations

from dataclasses import dataclass

from croupier.agent.core.tasks import Key
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.store_position import StorePosition
from croupier.model.task import Reason, TaskInfo, TaskStatus

# A subject, and a part of it that one record describes.
Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """The agent itself.

    Attributes:
        agent_id: empty until the agent has an id.
        boot_id: names the machine's boot; empty if the system does not tell.
        master_epoch: the highest epoch of a master seen in `cluster`.
        incomplete: records were lost, and no master has been informed yet.
    """

    agent_id: AgentId
    boot_id: str
    master_epoch: int
    incomplete: bool = False
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class PositionRecord:
    """The newest position of the master's store that the agent has received."""

    position: StorePosition


@dataclass(frozen=True, slots=True)
class FrameworkRecord:
    """The newest run of a framework's program that the agent has seen."""

    framework_id: FrameworkId
    epoch: int


@dataclass(frozen=True, slots=True)
class ForgetFramework:
    """The end of a framework's record: many newer frameworks were seen since."""

    framework_id: FrameworkId


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A new task with its first update.

    Attributes:
        run: names the directory and process of the task; empty if the task was never started.
        proof: of its launch; empty in records of older releases.
    """

    info: TaskInfo
    role: Role
    run: str
    first: TaskStatus
    proof: str = ""


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """A later update of a task."""

    status: TaskStatus


@dataclass(frozen=True, slots=True)
class KillRecord:
    """An order to kill a task."""

    framework_id: FrameworkId
    task_id: TaskId
    grace_ms: int
    reason: Reason
    message: str = ""


@dataclass(frozen=True, slots=True)
class AcknowledgedRecord:
    """The acknowledgement of a task's updates up to `sequence`."""

    framework_id: FrameworkId
    task_id: TaskId
    sequence: int


@dataclass(frozen=True, slots=True)
class VoidRecord:
    """The removal of the agent: the task is killed and not reported."""

    framework_id: FrameworkId
    task_id: TaskId


@dataclass(frozen=True, slots=True)
class ForgetTask:
    """The end of all records of a task."""

    framework_id: FrameworkId
    task_id: TaskId


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """All tasks of a group are recorded; before that, none is started."""

    framework_id: FrameworkId
    group_id: str


@dataclass(frozen=True, slots=True)
class ForgetGroup:
    """The end of the record of a group."""

    framework_id: FrameworkId
    group_id: str


TaskFact = TaskRecord | UpdateRecord | KillRecord | AcknowledgedRecord | VoidRecord | ForgetTask
GroupFact = GroupRecord | ForgetGroup
Record = AgentRecord | PositionRecord | FrameworkRecord | ForgetFramework | GroupFact | TaskFact


def key_of(record: TaskFact) -> Key:
    """Return the task that a record is about."""
    match record:
        case TaskRecord(first=status) | UpdateRecord(status):
            return status.framework_id, status.task_id
        case _:
            return record.framework_id, record.task_id


def place_of(record: Record) -> Place:
    """Return the place of a record; it replaces an earlier record of the same place.

    A record that `forgets` its subject replaces all records of it, and itself.
    """
    match record:
        case AgentRecord():
            return "", ""
        case PositionRecord():
            return "", "position"
        case FrameworkRecord(framework_id) | ForgetFramework(framework_id):
            return framework_id, ""
        case GroupRecord(framework_id, group_id) | ForgetGroup(framework_id, group_id):
            return f"{framework_id} {group_id} group", ""
        case _:
            part = type(record).__name__
            if isinstance(record, UpdateRecord):
                part = str(record.status.sequence)
            # Ids hold no blanks.
            return " ".join(key_of(record)), part


def forgets(record: Record) -> bool:
    """Return whether the record replaces all records of its subject."""
    return isinstance(record, ForgetTask | ForgetFramework | ForgetGroup)
