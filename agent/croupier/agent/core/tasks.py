"""One task on this agent."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.agent.core.pending_updates import PendingUpdates
from croupier.model.ids import DEFAULT_ROLE, FrameworkId, Role, TaskId
from croupier.model.task import Reason, TaskInfo, TaskState, TaskStatus

# A task's id is unique within its framework only.
Key = tuple[FrameworkId, TaskId]


@dataclass(frozen=True, slots=True)
class KillOrder:
    """That a task ends: why, and how long it may take to do so by itself."""

    reason: Reason
    grace_ms: int


@dataclass(slots=True)
class Task:
    """A task, from its launch until the last update on it is acknowledged.

    Attributes:
        role: what the master charges it to; kept for the next master.
        run: names its one process, over all lives of the agent; empty if it has none.
        status: the latest update; None until there is one.
        pid: of the task's first process; 0 until it is known to be started.
        kill: set once the task was asked to end.
    """

    framework_id: FrameworkId
    info: TaskInfo
    role: Role = DEFAULT_ROLE
    run: str = ""
    state: TaskState = TaskState.STAGING
    status: TaskStatus | None = None
    pid: int = 0
    kill: KillOrder | None = None
    updates: PendingUpdates = field(default_factory=PendingUpdates)

    @property
    def key(self) -> Key:
        """What the task is known by."""
        return (self.framework_id, self.info.task_id)

    @property
    def is_live(self) -> bool:
        """Whether the task has, or is about to have, a process, and so holds resources."""
        return not self.state.is_terminal

    def check(self) -> None:
        """Assert what always holds of a task."""
        self.updates.check()
        assert self.status is not None
        assert self.status.state is self.state
        assert self.status.sequence == self.updates.sequence
        if self.updates.waiting:
            assert self.updates.waiting[-1] is self.status
        # A terminal task is only here because its framework may not know of it yet.
        assert self.is_live or self.updates.waiting
        if self.is_live:
            assert self.run
            assert (self.state is TaskState.STARTING) == (self.pid == 0)
            assert self.state is not TaskState.KILLING or self.kill is not None


@dataclass(slots=True)
class Void:
    """A task that a removal made void; its process is being killed.

    Attributes:
        pid: 0 while it is not known whether there is a process.
    """

    run: str
    pid: int = 0
