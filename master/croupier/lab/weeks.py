"""Days of two traces as the work of teams.

The traces name no teams, so their jobs are dealt to two: `crawl` gets three quarters of them, `web`
the rest. They request 0.8 of the cluster on average. On some days `ads` comes, with a copy of every
second job of that day, so more is wanted than there is. All three have the same weight.

- SWIM has one day, of which each day here runs another part of the jobs. Sixteen tasks of a stage
  run one after the other, as one. Demands and times are those of `lab.jobs`.
- openb: its 150 days laid over the days here, on nodes of the kinds that have room for each pod. A
  pod runs as long as in the trace, but at most a day. The GPUs of a node are one amount,
  `gpu-share`, which may be divided in any way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

from croupier.lab.cluster import Node
from croupier.lab.experiments.openb import NAME
from croupier.lab.jobs import MAPS, REDUCES, Job, make_job
from croupier.lab.traces import OPENB_SOURCE, SWIM_SOURCE, read_nodes, read_pods, read_swim
from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources
from croupier.sim.experiment import Options
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work

TEAMS: Final = ("crawl", "web", "ads")
DAY_S: Final = 24 * 3600
LOAD: Final = 0.8
MERGED: Final = 16
_NODE: Final = Size.of(16, 32)


@dataclass(frozen=True, slots=True)
class Plan:
    """The days of jobs.

    Attributes:
        ads_days: the days on which ads comes.
        parts: of how many parts of SWIM each day runs one.
        sample_s: the time between samples of shares and parts.
        by_gpu: whether openb's pods of several GPUs are as many tasks of one.
        openb_part: openb has fewer jobs, so this times the part of SWIM's jobs is run of them.
    """

    days: int = 7
    ads_days: tuple[int, ...] = (3, 6)
    parts: int = 8
    sample_s: float = 1800.0
    by_gpu: bool = False
    openb_part: int = 1


@dataclass(slots=True)
class TeamJob:
    """A job of a team, and its arrival in seconds.

    Attributes:
        works: the tasks of all its stages.
        counted: those whose waits count.
        group: the jobs with which it is compared; empty: it is not.
    """

    team: str
    at: float
    job: Job
    works: Sequence[Work]
    counted: Sequence[Work]
    group: str

    @classmethod
    def of(cls, team: str, at: float, job: Job) -> TeamJob:
        """Return a job that has not begun; it is compared with those of its team."""
        works = [work for stage in job.stages for work in stage]
        for work in works:
            work.job = job
        return cls(team, at, job, works, works, team)


@dataclass(frozen=True, slots=True)
class Week:
    """The jobs of a trace and the nodes that they request `LOAD` of, and a half more with ads.

    `make` returns new jobs, the same each time.
    """

    trace: str
    nodes: Sequence[Node]
    make: Callable[[], list[TeamJob]]
    plan: Plan = Plan()


def swim_week(options: Options, plan: Plan) -> Week:
    """Return the days of the SWIM trace; `scale` takes a part of the jobs."""
    trace = read_swim(_folder(options))
    shapes = {size: Shape(size.resources, size) for _, size in (*MAPS, *REDUCES)}

    def make() -> list[TeamJob]:
        jobs: list[TeamJob] = []
        for number, swim in enumerate(trace):
            day, rng = number % plan.parts, Random(f"{options.seed}/{swim.name}")
            if day >= plan.days or rng.random() >= options.scale:
                continue
            at = float(day * DAY_S + swim.submit_s % DAY_S)
            for team in _teams(rng, number, day, plan):
                job = make_job(replace(swim, name=f"{swim.name}-{team}"), options.seed, shapes)
                job.stages = [_merged(stage) for stage in job.stages]
                jobs.append(TeamJob.of(team, at, job))
        return jobs

    node = Node("", _NODE, _NODE.resources)
    return Week("SWIM", _nodes([node], make(), plan), make, plan)


def _merged(stage: list[Work]) -> list[Work]:
    parts = [stage[first : first + MERGED] for first in range(0, len(stage), MERGED)]
    return [Work(part[0].shape, sum(work.seconds for work in part)) for part in parts]


def openb_week(options: Options, plan: Plan) -> Week:
    """Return the weeks of the openb trace as these days; `scale` takes a part of the pods."""
    folder, scale = _folder(options), options.scale * plan.openb_part
    pods = read_pods(folder)
    shapes: dict[tuple[int, int, int], Shape] = {}

    def make() -> list[TeamJob]:
        jobs: list[TeamJob] = []
        for number, pod in enumerate(pods):
            rng, at = Random(f"{options.seed}/{pod.name}"), pod.created_s % (plan.days * DAY_S)
            if rng.random() >= scale:
                continue
            seconds = float(min(max(pod.deleted_s - pod.created_s, 1), DAY_S))
            tasks = max(pod.gpus, 1) if plan.by_gpu else 1
            asks = (pod.cpu_milli // tasks, pod.mem_mib * 1000 // tasks, pod.gpu_total // tasks)
            ask = Resources(dict(zip(("cpus", "mem", NAME), asks, strict=True)))
            shape = shapes.setdefault(asks, Shape(ask, Size(*asks[:2])))
            for team in _teams(rng, number, at // DAY_S, plan):
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
    return Week("openb", _nodes(large, jobs, plan), make, plan)


def _folder(options: Options) -> Path:
    if options.data is None:
        raise InvalidRequest(f"--data is missing. {SWIM_SOURCE}. {OPENB_SOURCE}")
    return options.data


def _teams(rng: Random, number: int, day: int, plan: Plan) -> list[str]:
    """Return the team of a job, and ads if it has a copy."""
    team = TEAMS[0] if rng.random() < 0.75 else TEAMS[1]
    has_copy = day in plan.ads_days and number // plan.parts % 2
    return [team, TEAMS[2]] if has_copy else [team]


def _nodes(kinds: Sequence[Node], jobs: Sequence[TeamJob], plan: Plan) -> list[Node]:
    """Return nodes of these kinds in turn, of whose scarcest resource the jobs request `LOAD`."""
    asked: dict[str, float] = {}
    for each in jobs:
        for work in each.works if each.team != TEAMS[2] else ():
            for name, milli in work.shape.ask.scalars.items():
                asked[name] = asked.get(name, 0.0) + milli * work.seconds
    wanted = {name: amount / (plan.days * DAY_S * LOAD) for name, amount in asked.items()}
    nodes: list[Node] = []
    while any(milli > 0 for milli in wanted.values()):
        node = replace(kinds[len(nodes) % len(kinds)], hostname=f"n{len(nodes)}")
        nodes.append(node)
        for name, milli in node.advertised.scalars.items():
            wanted[name] = wanted.get(name, 0.0) - milli
    return nodes
