"""Weeks on the engine, under one rule or another, and what comes of each.

Every rule gets the same jobs. A job has waited for as long as its tasks have on average, each until
it started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median, quantiles
from typing import Final

from croupier.lab.cluster import PATIENT, Series, SimulatedCluster
from croupier.lab.jobs import Job
from croupier.lab.weeks import DAY_S, TEAMS, TeamJob, Week
from croupier.master.allocator import Allocator, Rules
from croupier.master.allocator.policies import Drf, Policy
from croupier.master.allocator.queries import rough_share
from croupier.master.core.usage_buckets import Amounts, add_to
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings
from croupier.sim.experiment import Check, Line, Plot, Progress, Result, Simulated, Table
from croupier.sim.framework import Habits, SimulatedFramework
from croupier.sim.work import Gang, Work

STEP_MS: Final = 300_000
TICK_S: Final = 5.0
Used = Mapping[Role, Amounts]


class Rule:
    """One way to run the jobs; this one is the engine's default.

    A run has its own. Others change the settings or the policy, learn what was used, or watch.
    """

    name = "DRF"
    make_allocator: type[Allocator] = Allocator

    def __init__(self) -> None:
        self.policy: Policy = Drf()
        self.settings = RoleSettings()

    def prepare(self, jobs: Sequence[TeamJob], /) -> None:
        """Change the jobs before the run."""

    def watch(self, cluster: SimulatedCluster, teams: Mapping[str, SimulatedFramework], /) -> None:
        """Schedule what is to happen in the run beside the jobs."""

    def learn(self, allocator: Allocator, used: Used, now_ms: int, /) -> None:
        """Learn what each role used in the step that ends now, in thousandths x milliseconds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A week under one rule.

    `series`: in percent, the dominant share of each team, and the parts of the cluster that are
    allocated to tasks, and lost: free and reserved, or held by tasks that wait for their gang.
    """

    week: Week
    rule: Rule
    jobs: Sequence[TeamJob]
    series: Series
    simulated: Simulated

    @property
    def trace(self) -> str:
        """The name of the trace."""
        return self.week.trace

    def waits(self, *groups: str) -> list[float]:
        """Return the mean wait of the counted tasks of each job of these groups, in minutes.

        The tasks of a stage wait from the end of the one before. Those that have not started by the
        end of the run have waited until then.
        """
        jobs = (each for each in self.jobs if each.group in groups)
        return [fmean(map(self._wait_s, each.counted)) / 60 for each in jobs]

    def mean_wait(self, *groups: str) -> float:
        """Return the mean of `waits`; 0 if there are none."""
        return fmean(self.waits(*groups) or [0.0])

    def part(self, name: str) -> float:
        """Return the mean of a series over the days of the plan."""
        return self.series.mean(name, 0, self.week.plan.days * DAY_S)

    @property
    def given_up(self) -> int:
        """The number of times that a task waited for its gang in vain."""
        started = (work for each in self.jobs for work in each.works if work.started_at is not None)
        return self.simulated.tasks - sum(1 for _ in started)

    def _wait_s(self, work: Work) -> float:
        started_at = self.simulated.virtual_s if work.started_at is None else work.started_at
        return started_at - work.submitted_at


def run_week(week: Week, rule: Rule, seed: int, progress: Callable[[float], None]) -> Outcome:
    """Run a week until all jobs are done, or ten times as many days are over."""
    roles = {Role(team): rule.settings for team in TEAMS}
    rules = Rules(order="pack", remembers_misfits=True)
    allocator = rule.make_allocator(rule.policy, rules, roles)
    cluster = SimulatedCluster(week.nodes, allocator, seed, PATIENT, tick_s=TICK_S)
    jobs, teams = week.make(), dict[str, SimulatedFramework]()
    rule.prepare(jobs)
    left = sum(len(each.works) for each in jobs)

    def end(team: str, work: Work) -> None:
        nonlocal left
        left -= 1
        assert isinstance(work.job, Job)
        teams[team].submit(work.job.end_task(cluster.now))

    def begin(each: TeamJob) -> None:
        teams[each.team].submit(each.job.begin(cluster.now))

    for team in TEAMS:
        habits = Habits(submits=True)
        teams[team] = cluster.framework(team, team, habits, on_end=partial(end, team))
    for each in jobs:
        cluster.kernel.at(each.at, partial(begin, each))

    def account() -> None:
        used = {
            Role(team): {name: milli * STEP_MS for name, milli in each.held.items()}
            for team, each in teams.items()
        }
        rule.learn(allocator, used, round(cluster.now * 1000))
        cluster.kernel.at(cluster.now + STEP_MS / 1000, account)

    cluster.kernel.at(STEP_MS / 1000, account)
    rule.watch(cluster, teams)
    series = Series(cluster.kernel, week.plan.sample_s)
    for team in TEAMS:
        series.watch(team, partial(_percent, allocator, Role(team)))
    series.watch("allocated", lambda: _part(allocator, (each.held for each in teams.values())))
    gangs = {work.gang: None for each in jobs for work in each.works if work.gang is not None}
    series.watch("lost", lambda: _part(allocator, _lost(cluster, gangs)))
    whole = float(week.plan.days * DAY_S)
    cluster.run(10 * whole, lambda now: progress(min(now / whole, 1.0)), lambda: not left)
    return Outcome(week, rule, jobs, series, cluster.simulated)


def _percent(allocator: Allocator, role: Role) -> float:
    return 100 * float(allocator.queries.role_share(role))


def _part(allocator: Allocator, amounts: Iterable[Mapping[str, int]]) -> float:
    """Return the dominant share of these amounts, in percent of the cluster."""
    total: Amounts = {}
    for each in amounts:
        add_to(total, each)
    return 100 * rough_share(total, allocator.queries.total)


def _lost(cluster: SimulatedCluster, gangs: Iterable[Gang]) -> Iterator[Mapping[str, int]]:
    """Yield what tasks hold that wait for their gang, and what is free and reserved."""
    yield from (work.shape.ask.scalars for gang in gangs for work in gang.waiting)
    allocator = cluster.kernel.state.allocator
    for agent in cluster.agents:
        free = allocator.queries.free(agent.agent_id)
        for each in allocator.reservations.of(agent.agent_id):
            yield (free - each.room(free)).scalars
            free = each.room(free)


def run_weeks(
    weeks: Sequence[Week], rules: Sequence[Callable[[], Rule]], seed: int, progress: Progress
) -> list[Outcome]:
    """Run each week under each rule."""
    runs = [(week, make_rule()) for week in weeks for make_rule in rules]
    outcomes: list[Outcome] = []
    for week, rule in runs:
        begun, text = len(outcomes), f"{week.trace}, {rule.name}"

        def report_done(done: float, begun: int = begun, text: str = text) -> None:
            progress((begun + done) / len(runs), text)

        outcomes.append(run_week(week, rule, seed, report_done))
    return outcomes


def judged(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the runs of SWIM, or of a test.

    Tasks of openb run for hours, so what a few of them do there depends on the seed.
    """
    return [run for run in outcomes if run.trace != "openb"]


def checks_of_waits(
    outcomes: Sequence[Outcome], who: str, groups: Sequence[str], than: str
) -> Iterator[Check]:
    """Check that these groups wait no longer than with the rule `than`, if with that they wait."""
    before = {run.trace: run.mean_wait(*groups) for run in outcomes if run.rule.name == than}
    for run in outcomes:
        wait, most = run.mean_wait(*groups), before[run.trace]
        if run.rule.name != than:
            yield Check(
                f"{run.trace}, {run.rule.name}: mean wait of {who}",
                f"no longer than {than}",
                f"{wait:.1f} min; {than} {most:.1f} min",
                wait <= most if most >= 1 else None,
            )


def report(
    name: str,
    outcomes: Sequence[Outcome],
    groups: Sequence[str],
    checks: Iterable[Check],
    tables: Sequence[Table] = (),
    notes: Sequence[str] = (),
) -> Result:
    """Return the waits of the groups as a table, and as bars for each trace."""
    waits = tuple(
        (run.trace, run.rule.name, group, *_figures(waits))
        for run in outcomes
        for group in groups
        if len(waits := run.waits(group)) > 1
    )
    head = ("trace", "rule", "group", "jobs", "mean wait, min", "median", "9 in 10 within",
            "longest")  # fmt: skip
    parts: dict[str, Callable[[Outcome], object]] = {
        "trace": lambda run: run.trace,
        "rule": lambda run: run.rule.name,
        "allocated, %": lambda run: round(run.part("allocated"), 2),
        "lost, %": lambda run: round(run.part("lost"), 2),
        "tasks given up": lambda run: run.given_up,
        "over after, h": lambda run: round(run.simulated.virtual_s / 3600, 1),
    }
    bars = {run.trace: list[Line]() for run in outcomes}
    for run in outcomes:
        points = [(float(x), run.mean_wait(group)) for x, group in enumerate(groups)]
        bars[run.trace].append(Line(run.rule.name, points))
    plots = [
        Plot(
            f"{name}_{trace.lower()}_waits",
            f"Mean wait ({trace})",
            "",
            "minutes",
            tuple(lines),
            is_bars=True,
            ticks=tuple(groups),
        )
        for trace, lines in bars.items()
    ]
    return Result(
        tuple(checks),
        (Table(f"{name}_waits", head, waits), Table.of(f"{name}_runs", outcomes, parts), *tables),
        (*plots, *(share_plot(name, run) for run in outcomes)),
        tuple(notes),
        sum((run.simulated for run in outcomes), Simulated(0, 0)),
    )


def _figures(waits: Sequence[float]) -> tuple[float, ...]:
    figures = (fmean(waits), median(waits), quantiles(waits, n=10)[-1], max(waits))
    return len(waits), *(round(each, 1) for each in figures)


def share_plot(name: str, run: Outcome) -> Plot:
    """Return the shares of the teams over time."""
    lines = tuple(
        Line(team, [(at / DAY_S, part) for at, part in run.series.curves[team]]) for team in TEAMS
    )
    slug = f"{name}_{run.trace.lower()}_{run.rule.name.lower().replace(' ', '_')}"
    title = f"Dominant shares with {run.rule.name} ({run.trace})"
    return Plot(slug, title, "days", "% of the cluster", lines)
