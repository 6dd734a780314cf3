"""The submitted tasks of a framework that have no agent yet, by role and shape."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from croupier.master.allocator.pending_demand import Shape
from croupier.master.core.tasks import Key, Task
from croupier.model.attributes import enforces
from croupier.model.demand import Placement
from croupier.model.ids import TaskId
from croupier.model.isolation import feature_names
from croupier.model.task import TaskInfo

# Each visit of an agent checks the shapes of a framework one by one.
MAX_QUEUES = 64
# The weight of the latest run in `run_s`.
RUN_WEIGHT = 0.2


def shape_of(info: TaskInfo, placement: Placement) -> Shape:
    """Return the shape of a task: agents that cannot enforce what it needs are excluded."""
    needs = info.needs()
    if needs:
        enforced = enforces(*feature_names(needs))
        placement = replace(placement, constraints=(*placement.constraints, enforced))
    return Shape(info.resources, placement)


class TaskQueues:
    """Queued tasks; those of one role and shape are placed in the order of their submission.

    Attributes:
        last: the number of the last submission.
        run_s: about how long tasks of a role and shape ran, in seconds; of the latest ones.
        lined: how many tasks that were in a queue are lined up at agents.
    """

    def __init__(self) -> None:
        self.last = 0
        self.run_s: dict[Key, float] = {}
        self.lined: Counter[Key] = Counter()
        self._queues: dict[Key, OrderedDict[TaskId, Task]] = {}
        self._keys: dict[TaskId, Key] = {}

    def __len__(self) -> int:
        """Return how many tasks are queued."""
        return len(self._keys)

    def __iter__(self) -> Iterator[Task]:
        """Yield all tasks, those of one role and shape in order."""
        for queue in self._queues.values():
            yield from queue.values()

    def heads(self) -> Iterator[Task]:
        """Yield the first task of each queue. O(queues)."""
        for queue in self._queues.values():
            yield next(iter(queue.values()))

    def has_room(self, key: Key) -> bool:
        """Return whether a task of this role and shape can be added."""
        return key in self._queues or len(self._queues) < MAX_QUEUES

    def add(self, task: Task, shape: Shape, *, at_begin: bool = False) -> Key:
        """Add a task at the end of its queue, or at its front; return the queue. O(1)."""
        assert task.queued is not None
        key = task.role, shape
        self.last = max(self.last, task.queued.number)
        queue = self._queues.setdefault(key, OrderedDict())
        queue[task.task_id] = task
        if at_begin:
            queue.move_to_end(task.task_id, last=False)
        self._keys[task.task_id] = key
        return key

    def remove(self, task: Task) -> Key:
        """Remove a task; return the queue that it was in. O(1)."""
        key = self._keys.pop(task.task_id)
        queue = self._queues[key]
        del queue[task.task_id]
        if not queue:
            del self._queues[key]
        return key

    def first(self, key: Key, number: int) -> list[Task]:
        """Return the first tasks of a queue; they stay in it."""
        return list(islice(self._queues[key].values(), number))

    def length(self, key: Key) -> int:
        """Return how many tasks of this role and shape are queued."""
        return len(self._queues.get(key, ()))

    def note_run(self, key: Key, seconds: float) -> None:
        """Note how long a task has run."""
        before = self.run_s.pop(key, seconds)
        self.run_s[key] = before + RUN_WEIGHT * (seconds - before)
        if len(self.run_s) > 2 * MAX_QUEUES:
            del self.run_s[next(iter(self.run_s))]
