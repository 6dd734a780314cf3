"""Forecasts of starts, on the weeks of `lab.weeks`: how far they are off, by how far they look.

Every half hour, one queued task of each team that has any is drawn, and its start foretold, with
what the master has learned by then. Teams submit their tasks without a declared time, and tasks
have no names: so all that is learned is how long the tasks of a team run. What comes later, and may
come first, is unknown to a forecast.

Expected: the error grows with the horizon. In nine of ten rehearsals a task starts before its late
time. What arrives later and comes first is in none of them, so of all tasks only more than half do.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import median, quantiles
from typing import Final, TypeVar

from croupier.lab.cluster import SimulatedCluster
from croupier.lab.week_runs import Rule, run_weeks
from croupier.lab.weeks import Plan, openb_week, swim_week
from croupier.master.core.forecast import foretell, picture_of, targets_of
from croupier.model.durations import span_text
from croupier.model.ids import FrameworkId
from croupier.sim.experiment import Check, Options, Progress, Result, Simulated, Table
from croupier.sim.framework import SimulatedFramework
from croupier.sim.work import Work

EXPECTED = (
    "Starts foretold each half hour in a week of the SWIM and openb traces. Expected: the\n"
    "error grows with the horizon, and more than half of the tasks start before the late time."
)

ASKED_EACH_S: Final = 1800.0
# Forecasts before this time know too little.
FIRST_S: Final = 6 * 3600.0
HORIZONS: Final = (60.0, 600.0, 3600.0, 6 * 3600.0, float("inf"))
_PART_BEFORE_LATE: Final = 0.5
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """A forecast, and the work that it is about; `median_s` is None if there was none."""

    at: float
    work: Work
    median_s: float | None
    late_s: float | None

    @property
    def start_s(self) -> float | None:
        """When the task did start, in seconds from the forecast; None if it never did."""
        started = self.work.started_at
        return None if started is None else started - self.at


class Asker(Rule):
    """Asks for forecasts while a cluster runs; `asked` are all of them."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.asked: list[Asked] = []
        self._rng = Random(seed)

    def watch(self, cluster: SimulatedCluster, teams: Mapping[str, SimulatedFramework], /) -> None:
        """Ask from time to time about tasks of these teams."""
        cluster.kernel.sample(ASKED_EACH_S, partial(self._ask, cluster, teams))

    def _ask(self, cluster: SimulatedCluster, teams: Mapping[str, SimulatedFramework]) -> None:
        state, now = cluster.kernel.state, cluster.now
        picture = None
        for team in teams.values() if now >= FIRST_S else ():
            framework = state.frameworks[FrameworkId(team.framework_id)]
            queued = list(framework.queues)
            if not queued:
                continue
            task = self._rng.choice(queued)
            picture = picture or _finished(picture_of(state, now))
            assert picture is not None
            (told,) = _finished(foretell(picture, targets_of(state, framework, task)))
            work = team.submitted(task.task_id)
            self.asked.append(Asked(now, work, told.median_s, told.late_s))


def _finished(steps: Generator[object, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as over:
            found: T = over.value
            return found


def run(options: Options, progress: Progress) -> Result:
    """Run both weeks; raises InvalidRequest without valid traces."""
    weeks = (openb_week(options, Plan()), swim_week(options, Plan()))
    rows: list[tuple[str | float, ...]] = []
    checks: list[Check] = []
    simulated = Simulated(0, 0)
    for ran in run_weeks(weeks, [partial(Asker, options.seed)], options.seed, progress):
        assert isinstance(ran.rule, Asker)
        simulated += ran.simulated
        rows += table_rows(ran.trace, ran.rule.asked)
        checks.append(_check(ran.trace, ran.rule.asked))
    head = ("trace", "foretold", "forecasts", "error, median", "error, 9 in 10", "before late, %")
    notes = ("the error is the time between the foretold and the real start",)
    return Result(tuple(checks), (Table("forecasts", head, tuple(rows)),), (), notes, simulated)


def table_rows(trace: str, asked: Sequence[Asked]) -> list[tuple[str | float, ...]]:
    """Return the errors by horizon, and how many had no forecast."""
    rows: list[tuple[str | float, ...]] = []
    least = 0.0
    for most in HORIZONS:
        errors, early = [], 0
        for each in asked:
            told, start = each.median_s, each.start_s
            if told is None or start is None or not least <= told < most:
                continue
            errors.append(abs(told - start))
            early += each.late_s is None or start <= each.late_s
        horizon = (
            f"under {span_text(most)}" if most < HORIZONS[-1] else f"{span_text(least)} or more"
        )
        if len(errors) > 1:
            nine = quantiles(errors, n=10)[-1]
            ahead = round(100 * early / len(errors))
            numbers = (span_text(median(errors)), span_text(nine), ahead)
            rows.append((trace, horizon, len(errors), *numbers))
        least = most
    unknown = sum(each.median_s is None for each in asked)
    rows.append((trace, "not foretold", unknown, "", "", ""))
    return rows


def _check(trace: str, asked: Sequence[Asked]) -> Check:
    known = [
        (each.start_s, each.late_s)
        for each in asked
        if each.median_s is not None and each.start_s is not None
    ]
    early = sum(late is None or (start or 0.0) <= late for start, late in known)
    part = early / len(known) if known else 0.0
    return Check(
        f"{trace}: tasks that start before the late time",
        f"at least {_PART_BEFORE_LATE:.0%}",
        f"{part:.0%} of {len(known)}",
        part >= _PART_BEFORE_LATE,
    )
