"""MapReduce jobs, derived from the byte counts of a SWIM trace.

The trace has no tasks, durations or demands. They are derived:

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

from random import Random

from croupier.lab.jobs import Job
from croupier.lab.traces import SwimJob
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work

MIB = 1 << 20
MAP_BYTES = 256 * MIB
REDUCE_BYTES = 1024 * MIB
START_S = 4.0
MAP_BYTES_S = 5 * MIB
REDUCE_BYTES_S = 10 * MIB
STRAGGLING = 0.3
# Odds of the size of a task.
MAPS = ((6, Size.of(1, 0.5)), (6, Size.of(1, 1)), (3, Size.of(1, 2)), (3, Size.of(0.5, 4)))
REDUCES = ((4, Size.of(1, 1)), (4, Size.of(1, 2)), (4, Size.of(0.5, 4)))


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
