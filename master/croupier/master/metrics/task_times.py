"""How long tasks take: a histogram for each step of their lives, from the facts of the core.

A task is measured from its first fact in this term. The cost is one entry of a dict for each task
that is known, and less than a microsecond for each change of its state.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from croupier.master.core import facts
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.task import TERMINAL, TaskState

# More tasks than these are not measured: about 30 MB.
MAX_TASKS = 200_000
BOUNDS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    *(60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0),
)
# The step that a task is in after it came into a state.
_ENDED: Final = "acknowledging"
_STEPS: Final = {
    TaskState.QUEUED: "queued",
    TaskState.STAGING: "starting",
    TaskState.RUNNING: "running",
    **dict.fromkeys(TERMINAL, _ENDED),
}
STEPS: Final = ("queued", "starting", "running", _ENDED)
_FOLLOWS: Final = {"queued": "starting", "starting": "running", "running": _ENDED}
NAME: Final = "task_step_seconds"
TEXT: Final = (
    "Time of each step of a task's life: queued, starting (from its launch order until it runs),"
    " running, acknowledging (from its end). A step that was cut short is not counted."
)


class TaskTimes(Collector):
    """Measures the steps of all tasks of a term; the histogram continues over terms."""

    def __init__(self) -> None:
        self._tasks: dict[FrameworkId, dict[TaskId, tuple[str, float]]] = {}
        self._count = 0
        self._buckets = {step: [0] * (len(BOUNDS) + 1) for step in STEPS}
        self._sums = dict.fromkeys(STEPS, 0.0)

    def happened(self, fact: facts.Fact, now: float) -> None:
        """Note a fact at `now`, in seconds on any steady clock."""
        if type(fact) is facts.TaskMoved:
            step = _STEPS.get(fact.state)
            if step is not None:
                self._enter(fact.framework_id, fact.task_id, step, now)
        elif type(fact) is facts.FrameworkLeft and fact.why == "removed":
            self._count -= len(self._tasks.pop(fact.framework_id, ()))

    def acknowledged(self, framework_id: FrameworkId, task_id: TaskId, now: float) -> None:
        """Note that the end of a task was acknowledged."""
        tasks = self._tasks.get(framework_id)
        known = None if tasks is None else tasks.pop(task_id, None)
        if known is not None:
            self._count -= 1
            self._measure(known, _ENDED, now)

    def clear(self) -> None:
        """Forget all tasks, at the end of a term."""
        self._tasks.clear()
        self._count = 0

    def collect(self) -> Iterator[Metric]:
        """Export the histogram."""
        family = HistogramMetricFamily(f"croupier_{NAME}", TEXT, labels=("step",))
        for step, counts in self._buckets.items():
            total, buckets = 0, list[tuple[str, float]]()
            for bound, count in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
                total += count
                buckets.append((bound, total))
            family.add_metric((step,), buckets, self._sums[step])
        yield family

    def _enter(self, framework_id: FrameworkId, task_id: TaskId, step: str, now: float) -> None:
        tasks = self._tasks.get(framework_id)
        known = None if tasks is None else tasks.get(task_id)
        if known is not None:
            if known[0] == step:
                # Such as a task that runs on after its agent was unreachable.
                return
            if _FOLLOWS.get(known[0]) == step:
                self._measure(known, known[0], now)
        elif step not in ("queued", "starting") or self._count >= MAX_TASKS:
            # Its beginning was not seen.
            return
        else:
            self._count += 1
        if tasks is None:
            tasks = self._tasks[framework_id] = {}
        tasks[task_id] = step, now

    def _measure(self, known: tuple[str, float], step: str, now: float) -> None:
        if known[0] == step:
            seconds = max(now - known[1], 0.0)
            self._buckets[step][bisect_left(BOUNDS, seconds)] += 1
            self._sums[step] += seconds
