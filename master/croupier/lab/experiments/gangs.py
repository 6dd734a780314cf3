"""Gangs: days of two traces, in which tasks of some jobs are of use only together.

The days are those of `lab.weeks`: one of SWIM without ads, and two of openb. Gangs are the first
stages of SWIM jobs that have 2 to 32 tasks, and openb's pods of several GPUs, as one task for each
GPU. The other tasks fill every gap. The same jobs run in three ways:

- with gathering: as the engine does, see `allocator.gatherer`.
- without gathering: a gang starts once there happens to be room for all of it.
- one by one: the master knows of no gangs. Tasks that have started hold their resources, and wait
  for the rest for 10 minutes, as programs do; then they end, and queue again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from croupier.lab.week_runs import Outcome, Rule, checks_of_waits, judged, report, run_weeks
from croupier.lab.weeks import Plan, TeamJob, Week, openb_week, swim_week
from croupier.master.allocator import Allocator
from croupier.sim.experiment import Check, Options, Progress, Result
from croupier.sim.work import Gang

EXPECTED = (
    "Days of the SWIM and openb traces, with gangs among single tasks. Expected of SWIM: gangs\n"
    "wait less if room is gathered for them than if not, and little of the cluster is lost."
)

SIZES: Final = {"2-4": 4, "5-8": 8, "9-16": 16, "17-32": 32}
NO_GANG: Final = "no gang"
MOST_LOST: Final = 5.0


class Gathering(Rule):
    """Gangs as the engine places them."""

    name = "with gathering"
    are_whole = True

    def prepare(self, jobs: Sequence[TeamJob], /) -> None:
        """Make gangs of jobs, which are compared by size."""
        for each in jobs:
            works = each.job.stages[0]
            sizes = (name for name, most in SIZES.items() if 2 <= len(works) <= most)
            each.group = next(sizes, NO_GANG)
            if each.group != NO_GANG:
                each.counted = works
                gang = Gang(each.job.name, works, is_whole=self.are_whole)
                for work in works:
                    work.gang = gang


class _NeverGathering(Allocator):
    def gather(self, now: float) -> None:
        """Leave gangs to chance."""


class NoGathering(Gathering):
    """Gangs start by chance."""

    name = "without gathering"
    make_allocator = _NeverGathering


class OneByOne(Gathering):
    """The master knows of no gangs."""

    name = "one by one"
    are_whole = False


def days(options: Options) -> tuple[Week, Week]:
    """Return the days of both traces."""
    of_openb = Plan(2, (1,), 2, sample_s=60.0, by_gpu=True, openb_part=10)
    of_swim = Plan(1, (), 1, sample_s=60.0)
    return openb_week(options, of_openb), swim_week(options, of_swim)


def run(options: Options, progress: Progress) -> Result:
    """Run the days in each way; raises InvalidRequest without valid traces."""
    rules = (Gathering, NoGathering, OneByOne)
    return compare(run_weeks(days(options), rules, options.seed, progress))


def compare(outcomes: Sequence[Outcome]) -> Result:
    """Return the waits by size of the gang, and what was lost."""
    return report("gangs", outcomes, (NO_GANG, *SIZES), _checks(judged(outcomes)))


def _checks(outcomes: Sequence[Outcome]) -> Iterator[Check]:
    yield from checks_of_waits(outcomes, "gangs", tuple(SIZES), than=NoGathering.name)
    for run in outcomes:
        lost = run.part("lost")
        yield Check(
            f"{run.trace}, {run.rule.name}: part of the cluster that is lost",
            f"at most {MOST_LOST:.0f} %",
            f"{lost:.2f} %",
            lost <= MOST_LOST,
        )
