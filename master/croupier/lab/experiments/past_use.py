"""Fair over time: a week of two traces, in which one team uses much and another comes rarely.

The traces name no teams, so their jobs are dealt to two: `crawl` gets three quarters of them, `web`
the rest. They request 0.8 of the cluster on average. On the fourth and the seventh day `ads` comes,
with a copy of every second job of that day, so more is wanted than there is. All three have the
same weight, and the half-life is a day.

- SWIM has one day, of which each day of the week runs another eighth of the jobs. Sixteen tasks of
  a stage run one after the other, as one. Demands and times are those of `lab.jobs`.
- openb: its 150 days laid over one week, on nodes of the kinds that have room for each pod. A pod
  runs as long as in the trace, but at most a day. The GPUs of a node are one amount, `gpu-share`,
  which may be divided in any way.

Each rule of `lab.fair_over_time` gets the same jobs. A job has waited for as long as its tasks have
on average, each until it started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from statistics import fmean, median, quantiles
from typing import Final

from croupier.lab.cluster import PATIENT, Node, Series, SimulatedCluster
from croupier.lab.experiments.openb import NAME
from croupier.lab.fair_over_time import RULES, STEP_MS, Rule
from croupier.lab.jobs import MAPS, REDUCES, Job, make_job
from croupier.lab.traces import OPENB_SOURCE, SWIM_SOURCE, read_nodes, read_pods, read_swim
from croupier.master.allocator import Allocator, Rules
from croupier.model.errors import InvalidRequest
from croupier.model.ids import Role
from croupier.model.resources import Resources
from croupier.sim.experiment import Check, Line, Options, Plot, Progress, Result, Simulated, Table
from croupier.sim.framework import Habits, SimulatedFramework
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work

EXPECTED = (
    "A week of the SWIM and openb traces: crawl uses most of the cluster, ads comes on two\n"
    "days. Expected: with a half-life, Slurm's fair tree and Karma, ads waits less on these\n"
    "days than with DRF, which does not remember what crawl has used."
)

TEAMS: Final = ("crawl", "web", "ads")
DAYS: Final = 7
DAY_S: Final = 24 * 3600
ADS_DAYS: Final = (3, 6)
LOAD: Final = 0.8
MERGED: Final = 16
PARTS_OF_DAY: Final = 8
SAMPLE_S: Final = 1800.0
TICK_S: Final = 5.0
_NODE: Final = Size.of(16, 32)


@dataclass(frozen=True, slots=True)
class TeamJob:
    """A job of a team, and its arrival in seconds; `works` are the tasks of all its stages."""

    team: str
    at: float
    job: Job
    works: Sequence[Work]

    @classmethod
    def of(cls, team: str, at: float, job: Job) -> TeamJob:
        """Return a job that has not begun."""
        works = [work for stage in job.stages for work in stage]
        for work in works:
            work.job = job
        return cls(team, at, job, works)

    @property
    def wait_s(self) -> float:
        """The mean wait of its tasks; those of a stage wait from the end of the one before."""
        starts = [(work.submitted_at, work.started_at) for work in self.works]
        return fmean(started - at for at, started in starts if started is not None)


@dataclass(frozen=True, slots=True)
class Week:
    """The jobs of a trace and the nodes that they request `LOAD` of, and a half more with ads.

    `make` returns new jobs, the same each time.
    """

    trace: str
    nodes: Sequence[Node]
    make: Callable[[], list[TeamJob]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A week under one rule."""

    trace: str
    rule: str
    jobs: Sequence[TeamJob]
    series: Series
    simulated: Simulated

    def waits(self, team: str) -> list[float]:
        """Return the waits of a team's jobs, in minutes; of all teams on the days of ads."""
        days = [each.at // DAY_S for each in self.jobs]
        return [
            each.wait_s / 60
            for each, day in zip(self.jobs, days, strict=True)
            if each.team == team and day in ADS_DAYS
        ]


def swim_week(options: Options) -> Week:
    """Return the week of the SWIM trace; `scale` takes a part of the jobs."""
    assert options.data is not None
    trace = read_swim(options.data)
    shapes = {size: Shape(size.resources, size) for _, size in (*MAPS, *REDUCES)}

    def make() -> list[TeamJob]:
        jobs: list[TeamJob] = []
        for number, swim in enumerate(trace):
            day, rng = number % PARTS_OF_DAY, Random(f"{options.seed}/{swim.name}")
            if day >= DAYS or rng.random() >= options.scale:
                continue
            at = float(day * DAY_S + swim.submit_s % DAY_S)
            for team in _teams(rng, number, day):
                job = make_job(replace(swim, name=f"{swim.name}-{team}"), options.seed, shapes)
                job.stages = [_merged(stage) for stage in job.stages]
                jobs.append(TeamJob.of(team, at, job))
        return jobs

    node = Node("", _NODE, _NODE.resources)
    return Week("SWIM", _nodes([node], make()), make)


def _merged(stage: list[Work]) -> list[Work]:
    parts = [stage[first : first + MERGED] for first in range(0, len(stage), MERGED)]
    return [Work(part[0].shape, sum(work.seconds for work in part)) for part in parts]


def openb_week(options: Options) -> Week:
    """Return the weeks of the openb trace as one; `scale` takes a part of the pods."""
    assert options.data is not None
    pods = read_pods(options.data)
    shapes: dict[tuple[int, int, int], Shape] = {}

    def make() -> list[TeamJob]:
        jobs: list[TeamJob] = []
        for number, pod in enumerate(pods):
            rng, at = Random(f"{options.seed}/{pod.name}"), pod.created_s % (DAYS * DAY_S)
            if rng.random() >= options.scale:
                continue
            seconds = float(min(max(pod.deleted_s - pod.created_s, 1), DAY_S))
            ask = {"cpus": pod.cpu_milli, "mem": pod.mem_mib * 1000, NAME: pod.gpu_total}
            made = Shape(Resources(ask), Size(pod.cpu_milli, pod.mem_mib * 1000))
            shape = shapes.setdefault((pod.cpu_milli, pod.mem_mib, pod.gpu_total), made)
            for team in _teams(rng, number, at // DAY_S):
                job = Job(f"{pod.name}-{team}", [[Work(shape, seconds)]])
                jobs.append(TeamJob.of(team, float(at), job))
        return jobs

    kinds = [
        Node(
            "",
            Size(node.cpu_milli, node.mem_mib * 1000),
            Resources({"cpus": node.cpu_milli, "mem": node.mem_mib * 1000, NAME: node.gpus * 1000}),
        )
        for node in read_nodes(options.data)
    ]
    jobs = make()
    asks = {work.shape.ask for each in jobs for work in each.works}
    large = [kind for kind in kinds if all(ask <= kind.advertised for ask in asks)]
    if not large:
        raise InvalidRequest(f"no node of the trace has room for each pod. {OPENB_SOURCE}")
    return Week("openb", _nodes(large, jobs), make)


def _teams(rng: Random, number: int, day: int) -> list[str]:
    """Return the team of a job, and ads if it has a copy."""
    team = TEAMS[0] if rng.random() < 0.75 else TEAMS[1]
    return [team, TEAMS[2]] if day in ADS_DAYS and number // PARTS_OF_DAY % 2 else [team]


def _nodes(kinds: Sequence[Node], jobs: Sequence[TeamJob]) -> list[Node]:
    """Return nodes of these kinds in turn, of whose scarcest resource the jobs request `LOAD`."""
    asked: dict[str, float] = {}
    for each in jobs:
        for work in each.works if each.team != TEAMS[2] else ():
            for name, milli in work.shape.ask.scalars.items():
                asked[name] = asked.get(name, 0.0) + milli * work.seconds
    wanted = {name: amount / (DAYS * DAY_S * LOAD) for name, amount in asked.items()}
    nodes: list[Node] = []
    while any(milli > 0 for milli in wanted.values()):
        node = replace(kinds[len(nodes) % len(kinds)], hostname=f"n{len(nodes)}")
        nodes.append(node)
        for name, milli in node.advertised.scalars.items():
            wanted[name] = wanted.get(name, 0.0) - milli
    return nodes


def run_week(
    week: Week,
    rule: Rule,
    seed: int,
    progress: Callable[[float], None],
    watch: Callable[[SimulatedCluster, dict[str, SimulatedFramework]], None] | None = None,
) -> Outcome:
    """Run a week until all jobs are done; `watch` is given the cluster and its teams before."""
    rules = Rules(order="pack", seed=seed, remembers_misfits=True)
    allocator = Allocator(rule.policy, rules, {Role(team): rule.settings for team in TEAMS})
    cluster = SimulatedCluster(week.nodes, allocator, seed, PATIENT, tick_s=TICK_S)
    jobs, teams = week.make(), dict[str, SimulatedFramework]()
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
    if watch is not None:
        watch(cluster, teams)
    series = Series(cluster.kernel, SAMPLE_S)
    for team in TEAMS:
        series.watch(team, partial(_percent, allocator, Role(team)))
    whole = float(DAYS * DAY_S)
    cluster.run(10 * whole, lambda now: progress(min(now / whole, 1.0)), lambda: not left)
    return Outcome(week.trace, rule.name, jobs, series, cluster.simulated)


def _percent(allocator: Allocator, role: Role) -> float:
    return 100 * float(allocator.queries.role_share(role))


def run(options: Options, progress: Progress) -> Result:
    """Run both weeks under each rule; raises InvalidRequest without valid traces."""
    if options.data is None:
        raise InvalidRequest(f"--data is missing. {SWIM_SOURCE}. {OPENB_SOURCE}")
    weeks = (openb_week(options), swim_week(options))
    outcomes: list[Outcome] = []
    for week in weeks:
        for rule in RULES:
            begun, text = len(outcomes), f"{week.trace}, {rule.name}"

            def report_done(done: float, begun: int = begun, text: str = text) -> None:
                progress((begun + done) / (len(weeks) * len(RULES)), text)

            outcomes.append(run_week(week, rule(DAY_S * 1000), options.seed, report_done))
    return report(outcomes)


def report(outcomes: Sequence[Outcome]) -> Result:
    """Return tables, plots and checks of all runs."""
    rows = [(run, team, run.waits(team)) for run in outcomes for team in TEAMS]
    table = Table(
        "past_use_waits",
        ("trace", "rule", "team", "jobs", "mean wait, min", "median", "9 in 10 within", "longest"),
        tuple(
            (
                run.trace,
                run.rule,
                team,
                len(waits),
                round(fmean(waits), 1),
                round(median(waits), 1),
                round(quantiles(waits, n=10)[-1], 1),
                round(max(waits), 1),
            )
            for run, team, waits in rows
            if len(waits) > 1
        ),
    )
    by_trace: dict[str, list[Outcome]] = {}
    for run in outcomes:
        by_trace.setdefault(run.trace, []).append(run)
    return Result(
        tuple(check for runs in by_trace.values() for check in _checks(runs)),
        (table,),
        tuple(plot for runs in by_trace.values() for plot in _plots(runs)),
        ("waits are those of jobs that came on the two days of ads",),
        sum((run.simulated for run in outcomes), Simulated(0, 0)),
    )


def _checks(runs: Sequence[Outcome]) -> Iterator[Check]:
    trace, (plain, *others) = runs[0].trace, runs
    waits = {run.rule: fmean(run.waits("ads") or [0.0]) for run in runs}
    for run in others:
        yield Check(
            f"{trace}: mean wait of ads on its days with {run.rule}",
            "less than with DRF",
            f"{waits[run.rule]:.1f} min, and {waits[plain.rule]:.1f} min with DRF",
            waits[run.rule] < waits[plain.rule],
        )


def _plots(runs: Sequence[Outcome]) -> Iterator[Plot]:
    trace = runs[0].trace
    bars = tuple(
        Line(run.rule, [(x, fmean(run.waits(team) or [0.0])) for x, team in enumerate(TEAMS)])
        for run in runs
    )
    title = f"Mean wait on the two days of ads ({trace})"
    name = f"past_use_{trace.lower()}"
    yield Plot(f"{name}_waits", title, "team", "minutes", bars, is_bars=True, ticks=TEAMS)
    for run in runs:
        lines = tuple(
            Line(team, [(at / DAY_S, part) for at, part in run.series.curves[team]])
            for team in TEAMS
        )
        slug = run.rule.lower().replace(" ", "_")
        title = f"Dominant shares with {run.rule} ({trace})"
        yield Plot(f"{name}_{slug}", title, "days", "% of the cluster", lines)
