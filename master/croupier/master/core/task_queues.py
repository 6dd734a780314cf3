"""The submitted tasks of a framework that have no agent yet, by role and shape.

A group or a gang is one entry of its queue: it is placed as a whole.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from croupier.master.allocator.pending_demand import Shape, gang_shape, rounded_time
from croupier.master.core.tasks import Key, Task
from croupier.model.attributes import enforces
from croupier.model.demand import Placement
from croupier.model.devices import DeviceNeed, needs_of
from croupier.model.ids import TaskId
from croupier.model.isolation import NO_FEATURES, feature_names
from croupier.model.resources import total_of
from croupier.model.task import TaskInfo

# Each visit of an agent checks the shapes of a framework one by one.
MAX_QUEUES = 64
# A task alone, or all tasks of a group or a gang.
Unit = tuple[Task, ...]
# The weight of the latest run in `run_s`.
RUN_WEIGHT = 0.2


def shape_of(unit: Sequence[TaskInfo], placement: Placement) -> Shape:
    """Return the shape of a task, a group or a gang.

    Agents that cannot enforce its needs are excluded.
    """
    needs = NO_FEATURES.union(*(info.needs() for info in unit))
    if needs:
        enforced = enforces(*feature_names(needs))
        placement = replace(placement, constraints=(*placement.constraints, enforced))
    total = total_of(info.resources for info in unit) if len(unit) > 1 else unit[0].resources
    time_ms, gang = longest_ms(unit), unit[0].gang
    if time_ms:
        time_ms = rounded_time(time_ms)
    if gang is not None:
        amounts = (info.resources for info in unit)
        devices = next((info.devices for info in unit if info.devices is not None), None)
        return Shape(total, placement, time_ms, gang_shape(amounts, gang.placement, devices))
    of_devices: tuple[DeviceNeed, ...] = ()
    if len(unit) > 1 or unit[0].devices is not None:
        of_devices = tuple(each for info in unit for each in needs_of(info.resources, info.devices))
    return Shape(total, placement, time_ms, devices=of_devices)


def longest_ms(unit: Sequence[TaskInfo]) -> int:
    """Return the declared time of the task that may run longest; 0 if one may run for ever."""
    longest = 0
    for info in unit:
        if not info.max_completion_ms:
            return 0
        longest = max(longest, info.max_completion_ms)
    return longest


class TaskQueues:
    """Queued tasks; those of one role and shape are placed in the order of their submission.

    Attributes:
        last: the number of the last submission.
        run_s: about how long tasks of a role and shape ran, in seconds; of the latest ones.
        lined: how many tasks that were in a queue are lined up at agents.
        returning: members of gangs that start again, which wait for the others' runs to end.
    """

    def __init__(self) -> None:
        self.last = 0
        self.run_s: dict[Key, float] = {}
        self.lined: Counter[Key] = Counter()
        self.returning: dict[TaskId, Task] = {}
        # By the first task of each entry.
        self._queues: dict[Key, OrderedDict[TaskId, Unit]] = {}
        # The queue of each task, and the first task of its entry.
        self._places: dict[TaskId, tuple[Key, TaskId]] = {}

    def __len__(self) -> int:
        """Return how many tasks are queued."""
        return len(self._places) + len(self.returning)

    def __iter__(self) -> Iterator[Task]:
        """Yield all tasks, those of one role and shape in order."""
        yield from self.returning.values()
        for queue in self._queues.values():
            for unit in queue.values():
                yield from unit

    def heads(self) -> Iterator[Task]:
        """Yield the first task of each queue. O(queues)."""
        for queue in self._queues.values():
            yield next(iter(queue.values()))[0]

    def has_room(self, key: Key) -> bool:
        """Return whether a task of this role and shape can be added."""
        return key in self._queues or len(self._queues) < MAX_QUEUES

    def add(self, unit: Unit, shape: Shape, *, at_begin: bool = False) -> Key:
        """Add a task or a group at the end of its queue, or at its front; return the queue."""
        first = unit[0]
        assert first.queued is not None
        key = first.role, shape
        self.last = max(self.last, first.queued.number)
        queue = self._queues.setdefault(key, OrderedDict())
        queue[first.task_id] = unit
        if at_begin:
            queue.move_to_end(first.task_id, last=False)
        for task in unit:
            self._places[task.task_id] = key, first.task_id
        return key

    def remove(self, task: Task) -> tuple[Key, Unit]:
        """Remove a task, with its group; return the queue that it was in, and all of them."""
        key, first = self._places[task.task_id]
        queue = self._queues[key]
        unit = queue.pop(first)
        for each in unit:
            del self._places[each.task_id]
        if not queue:
            del self._queues[key]
        return key, unit

    def first(self, key: Key, number: int) -> list[Unit]:
        """Return the first entries of a queue; they stay in it."""
        return list(islice(self._queues[key].values(), number))

    def positions(self, task_ids: Iterable[TaskId]) -> Iterator[tuple[TaskId, Key, int]]:
        """Yield the queue of each task that is in one, and its entry's place there, from 1.

        O(tasks, and those before the last of them in their queues).
        """
        wanted: dict[Key, dict[TaskId, list[TaskId]]] = {}
        for task_id in task_ids:
            if task_id in self._places:
                key, first = self._places[task_id]
                wanted.setdefault(key, {}).setdefault(first, []).append(task_id)
        for key, entries in wanted.items():
            for number, first in enumerate(self._queues[key], 1):
                for task_id in entries.pop(first, ()):
                    yield task_id, key, number
                if not entries:
                    break

    def length(self, key: Key) -> int:
        """Return how many entries of this role and shape are queued."""
        return len(self._queues.get(key, ()))

    def note_run(self, key: Key, seconds: float) -> None:
        """Note how long a task has run."""
        before = self.run_s.pop(key, seconds)
        self.run_s[key] = before + RUN_WEIGHT * (seconds - before)
        if len(self.run_s) > 2 * MAX_QUEUES:
            del self.run_s[next(iter(self.run_s))]
