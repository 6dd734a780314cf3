"""A task, as the master knows it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from croupier.master.core.effects import SessionId
from croupier.master.core.records import TaskRecord
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.task import Reason, TaskInfo, TaskState, TaskStatus, moved

# Of an ended task that holds more only the everyday scalars are kept, and so much of a message.
MAX_SLIM_PARTS = 32
MAX_SLIM_MESSAGE = 256


@dataclass(slots=True)
class Task:
    """A task that was launched, until its last update is acknowledged.

    Attributes:
        role: what it was launched in, whatever roles its framework has by now.
        status: the latest that is known, from the agent or of the master's own making.
        sequence: the highest number of an update that its agent sent.
        acknowledged: the highest number that its framework acknowledged.
        since: when it was launched, or found on its agent; seconds on the master's clock.
        is_charged: whether its resources are held on the agent.
        kill: the grace and reason of a kill that was asked for; kept until it has ended,
            so that an agent that was away hears of it.
        kill_due: when its agent, if it was told, has ended it by force; seconds on the
            master's clock.
        told_on: the session on which its latest status was passed on to its framework.
        told_sequence: the number of the last update that was.
        ended_on: the session on which its end was told in answer to RECONCILE, maybe ahead of
            earlier updates.
        is_orphan: whether its agent has it no more, so that the master itself must tell
            the framework what became of it.
        client_id: the run of its framework's program that launched it; empty if the task was
            found on its agent.
        seq: the number of the ACCEPT, of that run.
        told: what the master itself has said of it: that it was unreachable, though it may
            have returned since, or an end.
        is_untold: whether its framework was away when the master had something to say of it,
            or may not have heard it from an earlier master.
        is_undecided: whether only the ledger knows of it: its agent has not come back since
            this master began to lead. It is charged to its role and framework meanwhile.
    """

    info: TaskInfo
    framework_id: FrameworkId
    agent_id: AgentId
    role: Role
    status: TaskStatus
    since: float = 0.0
    sequence: int = 0
    acknowledged: int = 0
    is_charged: bool = False
    kill: tuple[int | None, Reason] | None = None
    told_on: SessionId | None = None
    told_sequence: int = 0
    ended_on: SessionId | None = None
    is_orphan: bool = False
    client_id: str = ""
    seq: int = 0
    told: TaskStatus | None = None
    is_untold: bool = False
    is_undecided: bool = False
    kill_due: float | None = None

    @property
    def task_id(self) -> TaskId:
        """The task's id, unique within its framework."""
        return self.info.task_id

    @property
    def state(self) -> TaskState:
        """The latest state that is known."""
        return self.status.state

    @property
    def is_counted(self) -> bool:
        """Whether it counts as used by its role and framework."""
        return self.is_charged or self.is_undecided

    def snapshot(self) -> TaskSnapshot:
        """Return the task at this moment."""
        return TaskSnapshot(self.info, self.framework_id, self.role, self.status)

    def record(self, is_acknowledged: bool = False) -> TaskRecord:
        """Return the task's record; `is_acknowledged`: its terminal status was acknowledged."""
        return TaskRecord(
            self.framework_id,
            self.info,
            self.agent_id,
            self.role,
            self.client_id,
            self.seq,
            self.kill,
            self.told,
            is_acknowledged,
        )

    def move(self, status: TaskStatus) -> None:
        """Take on a new status.

        Raises:
            Conflict: if a task cannot go from its state to that one.
        """
        if status.state != self.state:
            moved(self.task_id, self.state, status.state)
        self.status = status
        self.sequence = max(self.sequence, status.sequence)


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """A task at one moment; it never changes."""

    info: TaskInfo
    framework_id: FrameworkId
    role: Role
    status: TaskStatus

    def slimmed(self) -> TaskSnapshot:
        """Return it without what is large and only its agent needs."""
        info, status = self.info.slimmed(), self.status
        if info.resources.parts > MAX_SLIM_PARTS:
            info = replace(info, resources=info.resources.everyday())
        if len(status.message) > MAX_SLIM_MESSAGE:
            status = replace(status, message=status.message[:MAX_SLIM_MESSAGE])
        return replace(self, info=info, status=status)
