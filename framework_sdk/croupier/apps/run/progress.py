"""The state of each copy of the command, and the exit code of all. Pure.

Rule: a copy is pending, launched or ended. A launched copy is queued at the master until it has
an agent. Only a copy that never ran becomes pending again: its agent dropped it, up to three times,
or the master could not queue it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import Enum
from typing import Final

from croupier.apps.controller.outcomes import state_text
from croupier.cli.flags import TIMED_OUT
from croupier.cli.signals import SIGNAL_BASE
from croupier.model.task import Reason, TaskState, TaskStatus

MAX_DROPS: Final = 3


class CopyState(Enum):
    """The state of a copy."""

    PENDING = "pending"
    LAUNCHED = "launched"
    ENDED = "ended"


@dataclass(slots=True)
class Copy:
    """One copy of the command.

    Attributes:
        name: the task id of its first try.
        tries: the number of submissions, which makes each task id unique.
        drops: the number of launches that an agent dropped.
        code: the exit code as in a shell, once it has ended.
    """

    index: int
    name: str
    state: CopyState = CopyState.PENDING
    tries: int = 0
    drops: int = 0
    code: int = 0

    @property
    def task_id(self) -> str:
        """The task id of the latest try."""
        return self.name + (f".{self.tries}" if self.tries > 1 else "")


class Progress:
    """All copies of one job."""

    def __init__(self, count: int) -> None:
        self.copies = [Copy(index, f"run-{index}") for index in range(count)]
        self._pending = list(range(count))
        self._by_task: dict[str, Copy] = {}
        self._queued: set[str] = set()
        self._is_given_up = False

    @property
    def pending(self) -> int:
        """The number of copies that wait for an agent, at the master or to be submitted."""
        return 0 if self._is_given_up else len(self._pending) + len(self._queued)

    @property
    def live(self) -> list[Copy]:
        """The launched copies."""
        return [copy for copy in self.copies if copy.state is CopyState.LAUNCHED]

    @property
    def is_over(self) -> bool:
        """Whether no copy is pending or launched."""
        return not self._pending and not self._by_task

    @property
    def exit_code(self) -> int:
        """The exit code of the first copy whose code is not 0; 0 if there is none."""
        return next((copy.code for copy in self.copies if copy.code), 0)

    def name_copies(self, stem: str) -> None:
        """Name the copies: `stem`, or `stem-0` and so on. The stem of a job is always the same."""
        for copy in self.copies:
            copy.name = stem if len(self.copies) == 1 else f"{stem}-{copy.index}"

    def find(self, task_id: str) -> Copy | None:
        """Return the launched copy whose latest try is this task."""
        return self._by_task.get(task_id)

    def launch(self, count: int) -> list[Copy]:
        """Submit up to `count` pending copies, lowest first, each with a new task id."""
        taken = [heapq.heappop(self._pending) for _ in range(min(count, len(self._pending)))]
        copies = [self.copies[index] for index in taken]
        for copy in copies:
            copy.state = CopyState.LAUNCHED
            copy.tries += 1
            self._by_task[copy.task_id] = copy
            self._queued.add(copy.task_id)
        return copies

    def put_back(self, copy: Copy) -> None:
        """Make a launched copy that never ran pending again."""
        assert copy.state is CopyState.LAUNCHED
        self._queued.discard(copy.task_id)
        del self._by_task[copy.task_id]
        if self._is_given_up:
            copy.state = CopyState.ENDED
        else:
            copy.state = CopyState.PENDING
            heapq.heappush(self._pending, copy.index)

    def give_up(self) -> None:
        """Launch no more; end the pending copies without an exit code."""
        self._is_given_up = True
        for index in self._pending:
            self.copies[index].state = CopyState.ENDED
        self._pending.clear()

    def on_status(self, status: TaskStatus) -> str | None:
        """Apply a status update; return a warning for the user, if any."""
        copy = self._by_task.get(status.task_id)
        if copy is None:
            return None
        if status.agent_id:
            self._queued.discard(status.task_id)
        if status.state is TaskState.UNKNOWN:
            self.put_back(copy)
        elif status.state is TaskState.DROPPED:
            return self._on_dropped(copy, status)
        elif status.state is TaskState.UNREACHABLE:
            return f"{copy.task_id}: its agent {status.agent_id} is unreachable; waiting for it"
        elif status.state.is_terminal:
            self._end(copy, exit_code_of(status))
            wanted = self._is_given_up and status.state is TaskState.KILLED
            return None if wanted else warning_of(copy.task_id, status)
        return None

    def _on_dropped(self, copy: Copy, status: TaskStatus) -> str | None:
        copy.drops += 1
        if copy.drops <= MAX_DROPS:
            self.put_back(copy)
            return None
        self._end(copy, 1)
        return warning_of(copy.task_id, status)

    def _end(self, copy: Copy, code: int) -> None:
        self._queued.discard(copy.task_id)
        del self._by_task[copy.task_id]
        copy.state, copy.code = CopyState.ENDED, code


def exit_code_of(status: TaskStatus) -> int:
    """Return the exit code of an ended task as in a shell: 128 + N if signal N ended it.

    It is 124, as of timeout(1), for a task that did not end in time.
    """
    if status.reason is Reason.TIMED_OUT:
        return TIMED_OUT
    if status.signal is not None:
        return SIGNAL_BASE + status.signal
    if status.exit_code is not None and (status.exit_code or status.state is not TaskState.FAILED):
        return status.exit_code
    return 0 if status.state is TaskState.FINISHED else 1


def warning_of(task_id: str, status: TaskStatus) -> str | None:
    """Return a warning for an end that was not the command's own; None if it was."""
    has_ended = status.exit_code is not None or status.signal is not None
    is_agents = status.reason is Reason.CONTAINER_LAUNCH_FAILED or status.reason.is_limit
    by_itself = has_ended and not is_agents
    if status.state is TaskState.FINISHED or (status.state is TaskState.FAILED and by_itself):
        return None
    return f"{task_id}: {state_text(status)}"
