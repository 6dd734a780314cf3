"""One task on this agent."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.agent.core.updates import Updates
from croupier.model.ids import DEFAULT_ROLE, FrameworkId, Role, TaskId
from croupier.model.task import Reason, TaskInfo, TaskState, TaskStatus

# A task's id is unique within its framework only.
Key = tuple[FrameworkId, TaskId]


@dataclass(slots=True)
class Task:
    """A task, from its launch until the last update on it is acknowledged.

    Attributes:
        role: what the master charges it to; kept for the next master.
        status: the latest update; None until there is one.
        pid: of the task's first process, which leads a session and a process group of
            the same number; 0 until it is started.
        kill: why the task was asked to end; None if it was not.
    """

    framework_id: FrameworkId
    info: TaskInfo
    role: Role = DEFAULT_ROLE
    state: TaskState = TaskState.STAGING
    status: TaskStatus | None = None
    pid: int = 0
    kill: Reason | None = None
    updates: Updates = field(default_factory=Updates)

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
            assert (self.state is TaskState.STARTING) == (self.pid == 0)
            assert (self.state is TaskState.KILLING) == (self.kill is not None)
