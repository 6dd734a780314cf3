"""Usage of an agent's tasks: of each now, for operators, and sums for metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice

from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Adopting, InExecutor, Key, Starting
from croupier.agent.isolation.isolator import Layers
from croupier.model.isolation import Usage
from croupier.model.task import TaskStatus
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

SAMPLE_S = 10.0
# Tasks that are measured at once; each takes about 0.1 ms of the loop.
SLICE = 20
# Between two slices, so that at most a tenth of the loop's time is taken.
REST_S = 0.02


class TaskUsage:
    """The latest usage of all live tasks, and the sums since the agent has started.

    Rule: the sum of the cpu time never falls. At the end of a task, the time in its last update
    takes the place of the latest sample.
    """

    def __init__(self, state: AgentState, isolation: Layers) -> None:
        self._state, self._isolation = state, isolation
        self._latest: dict[Key, Usage] = {}
        self._ended_cpu_ms = 0

    @property
    def cpu_s(self) -> float:
        """Seconds of all cpus that tasks have used since the agent has started.

        A task that was adopted counts from its own start.
        """
        return (self._ended_cpu_ms + sum(each.cpu_ms for each in self._latest.values())) / 1000

    @property
    def memory_peak(self) -> int:
        """The sum of the peaks of live tasks in bytes."""
        return sum(each.memory_peak for each in self._latest.values())

    @property
    def disk_bytes(self) -> int:
        """The sum of the sandboxes of live tasks with a disk limit in bytes."""
        return sum(each.disk_bytes for each in self._latest.values())

    def of(self, key: Key) -> Usage | None:
        """Return what a task has used until now, or at its end; None if that is unknown."""
        task = self._state.tasks.get(key)
        if task is None or isinstance(task.phase, Starting | Adopting | InExecutor):
            return None
        if not task.is_live:
            return task.status.usage
        try:
            return self._isolation.usage(task.run)
        except OSError as error:
            _log.warning("usage_unreadable", run=task.run, error=str(error))
            return None

    def on_status(self, status: TaskStatus) -> None:
        """Take note of an update: an end counts with its own usage."""
        if not status.state.is_terminal:
            return
        before = self._latest.pop((status.framework_id, status.task_id), None)
        used = [each.cpu_ms for each in (before, status.usage) if each is not None]
        self._ended_cpu_ms += max(used, default=0)

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            await self.sample()

    async def sample(self, rest_s: float = REST_S) -> None:
        """Measure all live tasks, a slice at a time."""
        keys: Iterator[Key] = iter(list(self._state.tasks))
        while batch := list(islice(keys, SLICE)):
            for key in batch:
                used = self.of(key) if self._state.is_live(key) else None
                before = self._latest.get(key)
                if used is not None and (before is None or before.cpu_ms <= used.cpu_ms):
                    self._latest[key] = used
            await asyncio.sleep(rest_s)
        for key in [key for key in self._latest if not self._state.is_live(key)]:
            # Void: its end is never told.
            self._ended_cpu_ms += self._latest.pop(key).cpu_ms
