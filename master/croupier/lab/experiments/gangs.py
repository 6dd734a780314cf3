"""Gangs: days of two traces, in which tasks of some jobs are of use only together.

The days are those of `lab.weeks`: one of SWIM without ads, and two of openb. Gangs are the first
stages of SWIM jobs that have 2 to 32 tasks, and openb's pods of several GPUs, as one task for each
GPU. The other tasks fill every gap. The same jobs run in three ways:

- with gathering: as the engine does, see `allocator.gatherer`.
- without gathering: a gang starts once there happens to be room for all of it.
- one by one: the master knows of no gangs. Tasks that have started hold their resources, and wait
  for the rest for 10 minutes, as programs do; then they end, and queue again.

Lost is what nobody uses: what is free and reserved, or held by tasks that wait for others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from croupier.lab.cluster import Series, SimulatedCluster
from croupier.lab.weeks import (
    DAY_S,
    Calendar,
    Counted,
    Groups,
    Outcome,
    Rule,
    TeamJob,
    both_traces,
    report,
    run_weeks,
)
from croupier.master.allocator import Allocator
from croupier.master.allocator.queries import rough_share
from croupier.master.core.usage_buckets import Amounts, add_to
from croupier.model.resources import Resources
from croupier.sim.experiment import Check, Options, Progress, Result, Table
from croupier.sim.framework import SimulatedFramework
from croupier.sim.work import Gang, Work

EXPECTED = (
    "Days of the SWIM and openb traces, with gangs among single tasks. Expected: gangs wait\n"
    "less if room is gathered for them than if not, and little of the cluster is lost by it."
)

MOST: Final = 32
MOST_LOST: Final = 5.0
SWIM_DAY: Final = Calendar(1, (), 1, most_days=3)
OPENB_DAYS: Final = Calendar(2, (1,), 2, most_days=5)
SAMPLE_S: Final = 60.0
SIZES: Final = ((2, 4), (5, 8), (9, 16), (17, MOST))


class Gathering(Rule):
    """Gangs as the engine places them.

    `gangs`: those of the run. `parts`: percent of the cluster that are in use, and lost.
    """

    name = "with gathering"
    are_whole = True

    def __init__(self) -> None:
        super().__init__()
        self.gangs: list[Gang] = []
        self.parts: Series | None = None

    def prepare(self, jobs: Sequence[TeamJob], /) -> None:
        """Make gangs of the jobs that are to be some."""
        for each in jobs:
            if is_gang(each):
                gang = Gang(each.job.name, each.job.stages[0], is_whole=self.are_whole)
                self.gangs.append(gang)
                for work in gang.works:
                    work.gang = gang

    def watch(self, cluster: SimulatedCluster, teams: Mapping[str, SimulatedFramework], /) -> None:
        """Sample what is in use, and what is lost."""
        total = cluster.kernel.state.allocator.queries.total

        def waiting() -> Amounts:
            return _sum(work.shape.ask for gang in self.gangs for work in gang.waiting)

        def in_use() -> float:
            held = _sum(Resources(each.held) for each in teams.values())
            for name, milli in waiting().items():
                held[name] -= milli
            return 100 * rough_share(held, total)

        def lost() -> float:
            amounts = waiting()
            add_to(amounts, _sum(_reserved(cluster)))
            return 100 * rough_share(amounts, total)

        self.parts = Series(cluster.kernel, SAMPLE_S)
        self.parts.watch("in use", in_use)
        self.parts.watch("lost", lost)


class _NeverGathering(Allocator):
    def gather(self, now: float) -> None:
        """Leave gangs to chance."""


class NoGathering(Gathering):
    """Gangs start by chance."""

    name = "without gathering"

    def allocator(self) -> Allocator:
        """See `Rule`."""
        return _NeverGathering(self.policy, self.rules)


class OneByOne(Gathering):
    """The master knows of no gangs."""

    name = "one by one"
    are_whole = False


def is_gang(each: TeamJob) -> bool:
    """Return whether the first tasks of a job are a gang."""
    return 2 <= len(each.first) <= MOST


def _sum(amounts: Iterable[Resources]) -> Amounts:
    total: Amounts = {}
    for each in amounts:
        add_to(total, each.scalars)
    return total


def _reserved(cluster: SimulatedCluster) -> Iterator[Resources]:
    """Yield what is free and reserved on each agent."""
    allocator = cluster.kernel.state.allocator
    for agent in cluster.agents:
        free = allocator.queries.free(agent.agent_id)
        for each in allocator.reservations.of(agent.agent_id):
            kept = free - each.room(free)
            free = free - kept
            yield kept


def groups() -> Groups:
    """Return the tasks whose waits are compared, by the size of the gang."""
    found: dict[str, Counted] = {"no gang": lambda each: () if is_gang(each) else each.works}
    for least, most in SIZES:
        found[f"{least}-{most}"] = partial(_first_tasks, least=least, most=most)
    return found


def _first_tasks(each: TeamJob, least: int, most: int) -> Sequence[Work]:
    return each.first if least <= len(each.first) <= most else ()


def run(options: Options, progress: Progress) -> Result:
    """Run the days in each way; raises InvalidRequest without valid traces."""
    days = both_traces(options, OPENB_DAYS, SWIM_DAY, by_gpu=True)
    return compare(run_weeks(days, (Gathering, NoGathering, OneByOne), options, progress))


def compare(outcomes: Sequence[Outcome]) -> Result:
    """Return the waits by size of the gang, and what was lost."""
    checks = _checks(outcomes)
    table = parts_table("gangs", outcomes)
    return report("gangs", " by size of the gang", outcomes, groups(), checks, [table])


def parts_table(name: str, outcomes: Sequence[Outcome]) -> Table:
    """Return what was in use and lost in the days of each run, and how long it took."""
    rows = tuple((run.trace, run.rule.name, *parts_of(run)) for run in outcomes)
    columns = ("trace", "rule", "in use, %", "lost, %", "tasks given up", "over after, h")
    return Table(f"{name}_parts", columns, rows)


def parts_of(run: Outcome) -> tuple[float, float, int, float]:
    """Return percent in use and lost, the tasks that gave up waiting, and the hours of the run."""
    parts, end = _parts(run), run.week.calendar.days * DAY_S
    used, lost = (round(parts.mean(each, 0, end), 2) for each in ("in use", "lost"))
    works = (work for each in run.jobs for work in each.works)
    given_up = run.simulated.tasks - sum(work.started_at is not None for work in works)
    return used, lost, given_up, round(run.simulated.virtual_s / 3600, 1)


def _parts(run: Outcome) -> Series:
    assert isinstance(run.rule, Gathering)
    assert run.rule.parts is not None
    return run.rule.parts


def _all_gangs(each: TeamJob) -> Sequence[Work]:
    return each.first if is_gang(each) else ()


def _checks(outcomes: Sequence[Outcome]) -> Iterator[Check]:
    for trace in dict.fromkeys(run.trace for run in outcomes):
        runs = {type(run.rule): run for run in outcomes if run.trace == trace}
        waits = {each: run.mean_wait(_all_gangs) for each, run in runs.items()}
        lost = parts_of(runs[Gathering])[1]
        yield Check(
            f"{trace}: mean wait of gangs with gathering",
            "less than without",
            f"{waits[Gathering]:.1f} min, and {waits[NoGathering]:.1f} min without",
            waits[Gathering] < waits[NoGathering],
        )
        yield Check(
            f"{trace}: part of the cluster that gathering loses",
            f"at most {MOST_LOST:.0f} %",
            f"{lost:.2f} %",
            lost <= MOST_LOST,
        )
