"""Tasks that have ended and wrote nothing: their empty sandboxes are used again.

Making a directory may cost as much as a task. So the sandbox of a silent task is renamed for the
next task of its framework.

Rule: a directory is handed over once the shim has proved that no process of its task is left and
that it is as it was made, and once the framework has acknowledged the end. It never passes to
another framework. Readers learn from here that the task wrote nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from croupier.agent.core.tasks import Key
from croupier.model.ids import FrameworkId, TaskId

MOST_SPARE: Final = 1000
# Tasks without a directory that are remembered.
MOST_GIVEN: Final = 20_000


class SilentTasks:
    """The silent tasks of this life of the agent.

    `has_given` may be called by any thread.
    """

    def __init__(self) -> None:
        # Ended, and not forgotten by the agent.
        self._ended: set[Key] = set()
        # Those whose directories can be handed over; frameworks with the latest ones are last.
        self._spare: OrderedDict[FrameworkId, dict[TaskId, None]] = OrderedDict()
        self._spare_count = 0
        self._given: OrderedDict[Key, None] = OrderedDict()

    def add(self, key: Key) -> None:
        """Note that a task has ended and wrote nothing."""
        self._ended.add(key)

    def retire(self, key: Key) -> Key | None:
        """Keep the directory of a forgotten silent task for the next task.

        Return the task whose directory is of no use then; None if there is none.
        """
        if key not in self._ended:
            return key
        self._ended.discard(key)
        framework_id, task_id = key
        self._spare.setdefault(framework_id, {})[task_id] = None
        self._spare.move_to_end(framework_id)
        self._spare_count += 1
        if self._spare_count <= MOST_SPARE:
            return None
        oldest = next(iter(self._spare))
        task_id = next(iter(self._spare[oldest]))
        self._drop(oldest, task_id)
        return oldest, task_id

    def give(self, framework_id: FrameworkId) -> TaskId | None:
        """Return a task of the framework, the latest, whose directory is handed over now."""
        spare = self._spare.get(framework_id)
        if not spare:
            return None
        task_id = next(reversed(spare))
        self._drop(framework_id, task_id)
        self._given[framework_id, task_id] = None
        if len(self._given) > MOST_GIVEN:
            self._given.popitem(last=False)
        return task_id

    def has_given(self, key: Key) -> bool:
        """Return whether the task is known to be silent, and another one has its directory."""
        return key in self._given

    def has(self, key: Key) -> bool:
        """Return whether the task is known to be silent."""
        framework_id, task_id = key
        return (
            key in self._ended or key in self._given or task_id in self._spare.get(framework_id, ())
        )

    def forget(self, key: Key) -> None:
        """Forget a task: its directory was removed, or it is started again."""
        self._ended.discard(key)
        self._given.pop(key, None)
        framework_id, task_id = key
        if task_id in self._spare.get(framework_id, ()):
            self._drop(framework_id, task_id)

    def _drop(self, framework_id: FrameworkId, task_id: TaskId) -> None:
        spare = self._spare[framework_id]
        del spare[task_id]
        self._spare_count -= 1
        if not spare:
            del self._spare[framework_id]
