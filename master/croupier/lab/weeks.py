"""Days of two traces as the work of teams, on the engine, under one rule or another.

The traces name no teams, so their jobs are dealt to two: `crawl` gets three quarters of them, `web`
the rest. They request 0.8 of the cluster on average. On some days `ads` comes, with a copy of every
second job of that day, so more is wanted than there is. All three have the same weight.

- SWIM has one day, of which each day here runs another part of the jobs. Sixteen tasks of a stage
  run one after the other, as one. Demands and times are those of `lab.jobs`.
- openb: its 150 days laid over the days here, on nodes of the kinds that have room for each pod. A
  pod runs as long as in the trace, but at most a day. The GPUs of a node are one amount,
  `gpu-share`, which may be divided in any way.

Each rule gets the same jobs. A job has waited for as long as its tasks have on average, each until
it started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean, median, quantiles
from typing import Final

from croupier.lab.cluster import PATIENT, Node, Series, SimulatedCluster
from croupier.lab.experiments.openb import NAME
from croupier.lab.jobs import MAPS, REDUCES, Job, make_job
from croupier.lab.traces import OPENB_SOURCE, SWIM_SOURCE, read_nodes, read_pods, read_swim
from croupier.master.allocator import Allocator, Rules
from croupier.master.allocator.policies import Drf, Policy
from croupier.master.core.usage_buckets import Amounts
from croupier.model.errors import InvalidRequest
from croupier.model.ids import Role
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.sim.experiment import Check, Line, Options, Plot, Progress, Result, Simulated, Table
from croupier.sim.framework import Habits, SimulatedFramework
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work

TEAMS: Final = ("crawl", "web", "ads")
DAY_S: Final = 24 * 3600
LOAD: Final = 0.8
MERGED: Final = 16
OPENB_PART: Final = 10
SAMPLE_S: Final = 1800.0
STEP_MS: Final = 300_000
TICK_S: Final = 5.0
_NODE: Final = Size.of(16, 32)
Used = Mapping[Role, Amounts]


@dataclass(frozen=True, slots=True)
class Calendar:
    """The days of jobs.

    Attributes:
        ads_days: the days on which ads comes.
        parts: of how many parts of SWIM each day runs one.
        most_days: the run ends then, even if not all jobs are done.
    """

    days: int
    ads_days: tuple[int, ...]
    parts: int
    most_days: int = 70


WEEK: Final = Calendar(7, (3, 6), 8)


@dataclass(frozen=True, slots=True)
class TeamJob:
    """A job of a team, and its arrival in seconds.

    `works`: the tasks of all its stages. `first`: those of the first stage.
    """

    team: str
    at: float
    job: Job
    works: Sequence[Work]
    first: Sequence[Work]

    @classmethod
    def of(cls, team: str, at: float, job: Job) -> TeamJob:
        """Return a job that has not begun."""
        works = [work for stage in job.stages for work in stage]
        for work in works:
            work.job = job
        return cls(team, at, job, works, job.stages[0])


@dataclass(frozen=True, slots=True)
class Week:
    """The jobs of a trace and the nodes that they request `LOAD` of, and a half more with ads.

    `make` returns new jobs, the same each time.
    """

    trace: str
    nodes: Sequence[Node]
    make: Callable[[], list[TeamJob]]
    calendar: Calendar = WEEK


class Rule:
    """One way to run the jobs; this one is the engine's default.

    A run has its own. Others change the settings or the policy, learn what was used, or watch.
    """

    name = "DRF"

    def __init__(self, half_life_ms: int = DAY_S * 1000) -> None:
        """Forget half of the past use after this time, if the rule forgets."""
        self.half_life_ms = half_life_ms
        self.policy: Policy = Drf()
        self.settings = RoleSettings()
        self.rules = Rules(order="pack", remembers_misfits=True)

    def allocator(self) -> Allocator:
        """Return the allocator of the run."""
        return Allocator(self.policy, self.rules, {Role(team): self.settings for team in TEAMS})

    def prepare(self, jobs: Sequence[TeamJob], /) -> None:
        """Change the jobs before the run."""

    def watch(self, cluster: SimulatedCluster, teams: Mapping[str, SimulatedFramework], /) -> None:
        """Schedule what is to happen in the run beside the jobs."""

    def learn(self, allocator: Allocator, used: Used, now_ms: int, /) -> None:
        """Learn what each role used in the step that ends now, in thousandths x milliseconds."""


# The tasks of a job whose waits count; without any, the job does not.
Counted = Callable[[TeamJob], Sequence[Work]]
Groups = Mapping[str, Counted]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A week under one rule; `series` has the dominant share of each team, in percent."""

    week: Week
    rule: Rule
    jobs: Sequence[TeamJob]
    series: Series
    simulated: Simulated

    @property
    def trace(self) -> str:
        """The name of the trace."""
        return self.week.trace

    def waits(self, counted: Counted) -> list[float]:
        """Return the mean wait of the counted tasks of each job, in minutes.

        The tasks of a stage wait from the end of the one before. Those that have not started by the
        end of the run have waited until then.
        """
        counts = [works for each in self.jobs if (works := counted(each))]
        return [fmean(map(self._wait_s, works)) / 60 for works in counts]

    def mean_wait(self, counted: Counted) -> float:
        """Return the mean of `waits`; 0 if there are none."""
        return fmean(self.waits(counted) or [0.0])

    def _wait_s(self, work: Work) -> float:
        started_at = self.simulated.virtual_s if work.started_at is None else work.started_at
        return started_at - work.submitted_at


def swim_week(options: Options, calendar: Calendar = WEEK) -> Week:
    """Return the days of the SWIM trace; `scale` takes a part of the jobs."""
    trace = read_swim(_folder(options))
    shapes = {size: Shape(size.resources, size) for _, size in (*MAPS, *REDUCES)}

    def make() -> list[TeamJob]:
        jobs: list[TeamJob] = []
        for number, swim in enumerate(trace):
            day, rng = number % calendar.parts, Random(f"{options.seed}/{swim.name}")
            if day >= calendar.days or rng.random() >= options.scale:
                continue
            at = float(day * DAY_S + swim.submit_s % DAY_S)
            for team in _teams(rng, number, day, calendar):
                job = make_job(replace(swim, name=f"{swim.name}-{team}"), options.seed, shapes)
                job.stages = [_merged(stage) for stage in job.stages]
                jobs.append(TeamJob.of(team, at, job))
        return jobs

    node = Node("", _NODE, _NODE.resources)
    return Week("SWIM", _nodes([node], make(), calendar), make, calendar)


def _merged(stage: list[Work]) -> list[Work]:
    parts = [stage[first : first + MERGED] for first in range(0, len(stage), MERGED)]
    return [Work(part[0].shape, sum(work.seconds for work in part)) for part in parts]


def openb_week(options: Options, calendar: Calendar = WEEK, *, by_gpu: bool = False) -> Week:
    """Return the weeks of the openb trace as these days; `scale` takes a part of the pods.

    `by_gpu`: pods of several GPUs become as many tasks of one.
    """
    folder = _folder(options)
    pods = read_pods(folder)
    shapes: dict[tuple[int, int, int], Shape] = {}

    def make() -> list[TeamJob]:
        jobs: list[TeamJob] = []
        for number, pod in enumerate(pods):
            rng, at = Random(f"{options.seed}/{pod.name}"), pod.created_s % (calendar.days * DAY_S)
            if rng.random() >= options.scale:
                continue
            seconds = float(min(max(pod.deleted_s - pod.created_s, 1), DAY_S))
            tasks = max(pod.gpus, 1) if by_gpu else 1
            asks = (pod.cpu_milli // tasks, pod.mem_mib * 1000 // tasks, pod.gpu_total // tasks)
            ask = Resources(dict(zip(("cpus", "mem", NAME), asks, strict=True)))
            shape = shapes.setdefault(asks, Shape(ask, Size(*asks[:2])))
            for team in _teams(rng, number, at // DAY_S, calendar):
                works = [Work(shape, seconds) for _ in range(tasks)]
                jobs.append(TeamJob.of(team, float(at), Job(f"{pod.name}-{team}", [works])))
        return jobs

    kinds = [
        Node(
            "",
            Size(node.cpu_milli, node.mem_mib * 1000),
            Resources({"cpus": node.cpu_milli, "mem": node.mem_mib * 1000, NAME: node.gpus * 1000}),
        )
        for node in read_nodes(folder)
    ]
    jobs = make()
    asks = {work.shape.ask for each in jobs for work in each.works}
    large = [kind for kind in kinds if all(ask <= kind.advertised for ask in asks)]
    if not large:
        raise InvalidRequest(f"no node of the trace has room for each pod. {OPENB_SOURCE}")
    return Week("openb", _nodes(large, jobs, calendar), make, calendar)


def both_traces(
    options: Options, openb: Calendar, swim: Calendar, *, by_gpu: bool = False
) -> tuple[Week, Week]:
    """Return the days of both traces; openb has fewer jobs, so a larger part of them is taken."""
    more = replace(options, scale=min(1.0, OPENB_PART * options.scale))
    return openb_week(more, openb, by_gpu=by_gpu), swim_week(options, swim)


def _folder(options: Options) -> Path:
    if options.data is None:
        raise InvalidRequest(f"--data is missing. {SWIM_SOURCE}. {OPENB_SOURCE}")
    return options.data


def _teams(rng: Random, number: int, day: int, calendar: Calendar) -> list[str]:
    """Return the team of a job, and ads if it has a copy."""
    team = TEAMS[0] if rng.random() < 0.75 else TEAMS[1]
    has_copy = day in calendar.ads_days and number // calendar.parts % 2
    return [team, TEAMS[2]] if has_copy else [team]


def _nodes(kinds: Sequence[Node], jobs: Sequence[TeamJob], calendar: Calendar) -> list[Node]:
    """Return nodes of these kinds in turn, of whose scarcest resource the jobs request `LOAD`."""
    asked: dict[str, float] = {}
    for each in jobs:
        for work in each.works if each.team != TEAMS[2] else ():
            for name, milli in work.shape.ask.scalars.items():
                asked[name] = asked.get(name, 0.0) + milli * work.seconds
    wanted = {name: amount / (calendar.days * DAY_S * LOAD) for name, amount in asked.items()}
    nodes: list[Node] = []
    while any(milli > 0 for milli in wanted.values()):
        node = replace(kinds[len(nodes) % len(kinds)], hostname=f"n{len(nodes)}")
        nodes.append(node)
        for name, milli in node.advertised.scalars.items():
            wanted[name] = wanted.get(name, 0.0) - milli
    return nodes


def run_week(week: Week, rule: Rule, seed: int, progress: Callable[[float], None]) -> Outcome:
    """Run a week until all jobs are done."""
    allocator = rule.allocator()
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
    series = Series(cluster.kernel, SAMPLE_S)
    for team in TEAMS:
        series.watch(team, partial(_percent, allocator, Role(team)))
    whole = float(week.calendar.days * DAY_S)
    most_s = float(week.calendar.most_days * DAY_S)
    cluster.run(most_s, lambda now: progress(min(now / whole, 1.0)), lambda: not left)
    return Outcome(week, rule, jobs, series, cluster.simulated)


def _percent(allocator: Allocator, role: Role) -> float:
    return 100 * float(allocator.queries.role_share(role))


def run_weeks(
    weeks: Sequence[Week],
    rules: Sequence[Callable[[], Rule]],
    options: Options,
    progress: Progress,
) -> list[Outcome]:
    """Run each week under each rule."""
    outcomes: list[Outcome] = []
    for week in weeks:
        for make_rule in rules:
            rule, begun = make_rule(), len(outcomes)

            def report_done(
                done: float, begun: int = begun, text: str = f"{week.trace}, {rule.name}"
            ) -> None:
                progress((begun + done) / (len(weeks) * len(rules)), text)

            outcomes.append(run_week(week, rule, options.seed, report_done))
    return outcomes


def report(
    name: str,
    what: str,
    outcomes: Sequence[Outcome],
    groups: Groups,
    checks: Iterable[Check],
    tables: Sequence[Table] = (),
    notes: Sequence[str] = (),
) -> Result:
    """Return the waits of the groups as a table, and as bars for each trace."""
    rows = [
        (run.trace, run.rule.name, group, *_figures(waits))
        for run in outcomes
        for group, counted in groups.items()
        if len(waits := run.waits(counted)) > 1
    ]
    figures = ("jobs", "mean wait, min", "median", "9 in 10 within", "longest")
    plots = []
    for trace in dict.fromkeys(run.trace for run in outcomes):
        bars = [
            Line(run.rule.name, list(enumerate(map(run.mean_wait, groups.values()))))
            for run in outcomes
            if run.trace == trace
        ]
        title, slug = f"Mean wait{what} ({trace})", f"{name}_{trace.lower()}_waits"
        ticks = tuple(groups)
        plots.append(Plot(slug, title, "", "minutes", tuple(bars), is_bars=True, ticks=ticks))
    return Result(
        tuple(checks),
        (Table(f"{name}_waits", ("trace", "rule", "group", *figures), tuple(rows)), *tables),
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
