"""Jobs: tasks that belong together, in stages, and the users that submit them.

MapReduce jobs are derived from the byte counts of a SWIM trace, which has no tasks, durations or
demands:

- Maps: one for each 256 MiB of map input, at least one. Reduces: one for each GiB of shuffle and
  output together, as in SWIM's own replay; at least one if there is any shuffle, else none. They
  start when all maps have ended.
- Time: 4 s to start, then 5 MiB of input a second for a map, 10 MiB of shuffle and output a
  second for a reduce; times a random factor for each task, log-normal with a median of 1 and a
  sigma of 0.3 (stragglers).
- Demand: one for all maps of a job and one for all its reduces, random with the odds of `MAPS` and
  `REDUCES`. In the DRF paper (figure 1), on the Facebook cluster of that month, most tasks are
  heavy on CPU and some on memory, reduces above all.

The randomness depends on the seed and the job's id alone: every scheduler gets the same jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from croupier.lab.cluster import SimulatedCluster
from croupier.lab.traces import SwimJob
from croupier.model.limits import MIB
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work

MAP_BYTES = 256 * MIB
REDUCE_BYTES = 1024 * MIB
START_S = 4.0
MAP_BYTES_S = 5 * MIB
REDUCE_BYTES_S = 10 * MIB
STRAGGLING = 0.3
# Odds of the size of a task.
MAPS = ((6, Size.of(1, 0.5)), (6, Size.of(1, 1)), (3, Size.of(1, 2)), (3, Size.of(0.5, 4)))
REDUCES = ((4, Size.of(1, 1)), (4, Size.of(1, 2)), (4, Size.of(0.5, 4)))


@dataclass(slots=True, eq=False)
class Job:
    """A job's stages; each begins when all tasks of the one before have ended.

    Attributes:
        stages: the stages that have not begun.
        left: the tasks of the current stage that have not ended.
        tasks: the tasks of all stages that have begun.
        submitted_at, finished_at: virtual seconds; None before.
    """

    name: str
    stages: list[list[Work]]
    left: int = 0
    tasks: int = 0
    submitted_at: float | None = None
    finished_at: float | None = None

    @property
    def response_s(self) -> float:
        """The time from submission to the end of the last task."""
        assert self.submitted_at is not None
        assert self.finished_at is not None
        return self.finished_at - self.submitted_at

    def begin(self, now: float) -> list[Work]:
        """Begin the first stage, and return its tasks."""
        self.submitted_at = now
        return self._next_stage()

    def end_task(self, now: float) -> list[Work]:
        """Record the end of a task, and return the tasks of a stage that begins now."""
        self.left -= 1
        works = [] if self.left else self._next_stage()
        if not self.left:
            self.finished_at = now
        return works

    def _next_stage(self) -> list[Work]:
        works = self.stages.pop(0) if self.stages else []
        self.left = len(works)
        self.tasks += self.left
        return works


class LoopingUser:
    """Submits a job, waits until it is done, and submits the next, for ever."""

    def __init__(
        self, cluster: SimulatedCluster, name: str, make_job: Callable[[int], Job]
    ) -> None:
        """Submit the first job; `make_job` takes the number of the job, from 0."""
        self._cluster = cluster
        self._make_job = make_job
        self.done: list[Job] = []
        self._job = make_job(0)
        works = self._job.begin(cluster.now)
        self._framework = cluster.framework(name, name, None, works, self._on_end)

    def _on_end(self, _work: Work) -> None:
        now = self._cluster.now
        works = self._job.end_task(now)
        if self._job.finished_at is not None:
            self.done.append(self._job)
            self._job = self._make_job(len(self.done))
            works = self._job.begin(now)
        self._framework.submit(works)


def submit(cluster: SimulatedCluster, job: Job, on_done: Callable[[Job], None]) -> None:
    """Connect a framework for one job, which leaves when the job is done."""

    def on_end(_work: Work) -> None:
        framework.submit(job.end_task(cluster.now))
        if job.finished_at is not None:
            framework.leave()
            on_done(job)

    framework = cluster.framework(job.name, "*", None, job.begin(cluster.now), on_end)


def task_counts(job: SwimJob) -> tuple[int, int]:
    """Return the number of maps and of reduces of a job."""
    maps = max(1, -(-job.map_input // MAP_BYTES))
    reduces = max(1, -(-(job.shuffle + job.output) // REDUCE_BYTES)) if job.shuffle else 0
    return maps, reduces


def make_job(job: SwimJob, seed: int, shapes: dict[Size, Shape]) -> Job:
    """Return the job with its tasks; `shapes` has the shape of tasks of each size."""
    rng = Random(f"{seed}/{job.name}")
    maps, reduces = task_counts(job)
    map_s = START_S + job.map_input / maps / MAP_BYTES_S
    stages = [_stage(rng, shapes[_draw(rng, MAPS)], maps, map_s)]
    if reduces:
        reduce_s = START_S + (job.shuffle + job.output) / reduces / REDUCE_BYTES_S
        stages.append(_stage(rng, shapes[_draw(rng, REDUCES)], reduces, reduce_s))
    return Job(job.name, stages)


def _stage(rng: Random, shape: Shape, count: int, seconds: float) -> list[Work]:
    return [Work(shape, seconds * rng.lognormvariate(0, STRAGGLING)) for _ in range(count)]


def _draw(rng: Random, odds: tuple[tuple[int, Size], ...]) -> Size:
    (size,) = rng.choices([size for _, size in odds], [weight for weight, _ in odds])
    return size
