"""Ended tasks that operators can list, acknowledged or in no need of an acknowledgement."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from croupier.master.core.tasks import TaskSnapshot
from croupier.model.ids import FrameworkId, TaskId


class EndedTasks:
    """A bounded number of ended tasks, oldest first; the oldest are forgotten."""

    def __init__(self, most: int) -> None:
        """Hold at most `most`.

        Raises:
            ValueError: if that is negative.
        """
        if most < 0:
            raise ValueError(f"{most} ended tasks cannot be kept")
        self._most = most
        self._tasks: OrderedDict[tuple[FrameworkId, TaskId], TaskSnapshot] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[TaskSnapshot]:
        return iter(self._tasks.values())

    def get(self, framework_id: FrameworkId, task_id: TaskId) -> TaskSnapshot | None:
        """Return the task; None if it is unknown or forgotten."""
        return self._tasks.get((framework_id, task_id))

    def add(self, task: TaskSnapshot) -> None:
        """Add a task in place of an older one with the same id."""
        key = (task.framework_id, task.info.task_id)
        self._tasks[key] = task
        self._tasks.move_to_end(key)
        if len(self._tasks) > self._most:
            self._tasks.popitem(last=False)
