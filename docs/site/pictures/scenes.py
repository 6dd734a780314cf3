"""Scenes: teams with endless short tasks, on the master's real core in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from croupier.lab.cluster import Node, Points, Series, SimulatedCluster, make_allocator
from croupier.lab.experiments.lined_up import ALONE_S, Contest
from croupier.lab.fair_over_time import RULES
from croupier.lab.jobs import Job
from croupier.lab.week_runs import run_week
from croupier.lab.weeks import TeamJob, Week
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings
from croupier.sim.framework import SimulatedFramework
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work
from docs.site.pictures.chart import Chart, Curve

_NODES: Final = 5
_NODE: Final = Size.of(8, 16)
_TASK_S: Final = (10.0, 20.0)
_BACKLOG: Final = 100
_STEP_S: Final = 1.0
_SMOOTH: Final = 5


@dataclass(frozen=True, slots=True)
class Team:
    """A framework that always wants more, from minute `joins` to minute `leaves`."""

    role: str
    cpus: float = 1
    mem_gb: float = 1
    joins: float = 0
    leaves: float = 99


@dataclass(frozen=True, slots=True)
class Scene:
    """Teams on a cluster of 40 CPUs and 80 GB. `watched` has labels, roles, and resources."""

    title: str
    what: str
    teams: Sequence[Team]
    watched: Sequence[tuple[str, str, str]]  # label, role, resource
    settings: Mapping[str, RoleSettings]
    notes: Sequence[tuple[float, str]]
    minutes: float

    def chart(self) -> Chart:
        """Run it, and return its chart."""
        allocator = make_allocator(seed=1)
        for role, settings in self.settings.items():
            allocator.set_role(Role(role), settings)
        nodes = [Node(f"n{number}", _NODE, _NODE.resources) for number in range(_NODES)]
        cluster = SimulatedCluster(nodes, allocator, 1)
        endless = {team.role: _Endless(cluster, team) for team in self.teams}
        series = Series(cluster.kernel, _STEP_S)
        for label, role, resource in self.watched:
            series.watch(label, endless[role].watch(resource))
        cluster.run(self.minutes * 60)
        curves = [Curve(label, _smooth(series.curves[label])) for label, _, _ in self.watched]
        return Chart(self.title, self.what, curves, self.notes)


class _Endless:
    """A team while it is there."""

    def __init__(self, cluster: SimulatedCluster, team: Team) -> None:
        self._cluster, self._team = cluster, team
        size = Size.of(team.cpus, team.mem_gb)
        self._shape = Shape(size.resources, size)
        self._framework: SimulatedFramework | None = None
        cluster.kernel.at(team.joins * 60, self._join)
        cluster.kernel.at(team.leaves * 60, self._leave)

    def watch(self, resource: str) -> Callable[[], float]:
        """Return the function that samples its share of a resource, in percent."""
        total = {"cpus": self._cluster.size.cpus, "mem": self._cluster.size.mem}[resource]

        def share() -> float:
            held = self._framework.held if self._framework else {}
            return 100 * held.get(resource, 0) / total

        return share

    def _join(self) -> None:
        role = self._team.role
        self._framework = self._cluster.framework(
            role.replace("/", "-"), role, None, self._works(_BACKLOG), self._on_end
        )
        assert self._framework.error is None

    def _leave(self) -> None:
        assert self._framework
        self._framework.withdraw()

    def _on_end(self, _work: Work) -> None:
        if self._framework and self._cluster.now < self._team.leaves * 60:
            self._framework.submit(self._works(1))

    def _works(self, count: int) -> list[Work]:
        return [Work(self._shape, self._cluster.rng.uniform(*_TASK_S)) for _ in range(count)]


def _smooth(points: Points) -> Points:
    """Return the means of some points each, in minutes."""
    parts = (points[start : start + _SMOOTH] for start in range(0, len(points), _SMOOTH))
    return [(part[0][0] / 60, sum(value for _, value in part) / len(part)) for part in parts]


def _lined_up(trip_ms: int) -> Chart:
    """Return the chart of a guest that comes to tasks of 10 ms, which are lined up or not."""
    curves, before_ms = [], 2 * trip_ms
    for watched, suffix in ((("guest", "busy"), ""), (("guest",), ", one by one")):
        contest = Contest(8, trip_ms / 1000, not suffix, 1)
        contest.cluster.run(ALONE_S + 6 * trip_ms / 1000)
        for name in watched:
            points = [
                ((at - ALONE_S) * 1000 + before_ms, part)
                for at, part in contest.series.curves[name]
                if (at - ALONE_S) * 1000 >= -before_ms
            ]
            curves.append(Curve(name + suffix, points))
    title = f"8 slots, tasks of 10 ms, a round trip of {trip_ms} ms"
    notes = ((before_ms, "the guest comes"),)
    return Chart(title, "share of all slots", curves, notes, "milliseconds", trip_ms)


def pictures() -> Iterator[tuple[str, str]]:
    """Yield the name and content of each picture."""
    for name, scene in SCENES.items():
        yield f"{name}.svg", scene.chart().svg()
    yield "lined-up.svg", _lined_up(10).svg()
    yield "lined-up-far.svg", _lined_up(50).svg()
    yield "past-use.svg", _past_use().svg()


def _past_use() -> Chart:
    """Return the chart of a team that comes after a day in which another one used everything."""
    slots = 16

    def work(team: str, at_h: int, tasks: int) -> TeamJob:
        rng, size = Random(team), Size.of(1, 1)
        shape = Shape(size.resources, size)
        works = [Work(shape, rng.uniform(2400, 4800)) for _ in range(tasks)]
        return TeamJob.of(team, at_h * 3600.0, Job(team, [works]))

    size = Size.of(slots, slots)
    week = Week(
        "",
        [Node("n", size, size.resources)],
        lambda: [work("crawl", 0, slots * 60), work("ads", 24, slots * 40)],
    )
    curves = []
    for rule in RULES:
        points = run_week(week, rule(), 1, lambda _: None).series.curves["ads"]
        hours = [(at / 3600, part) for at, part in points if at <= 60 * 3600]
        curves.append(Curve(rule.name, hours))
    title = "Crawl uses everything for a day; then ads wants everything as well"
    notes = ((24, "ads comes"),)
    return Chart(title, "share of ads by rule, half-life 24 hours", curves, notes, "hours", 6)


_WEB: Final = ("web", "web", "cpus")
_ALL_CPUS: Final = 40_000

SCENES: Final = {
    "two-teams": Scene(
        "Ads has weight 2, web has weight 1",
        "share of all CPUs",
        (Team("web"), Team("ads", joins=1, leaves=4)),
        (("ads", "ads", "cpus"), _WEB),
        {"ads": RoleSettings(weight=2_000)},
        ((1, "ads joins"), (4, "ads has no more work")),
        6,
    ),
    "dominant-shares": Scene(
        "Tasks of 1 CPU and 4 GB, and of 3 CPUs and 1 GB",
        "share of all CPUs, and of all memory",
        (Team("index", 1, 4), Team("video", 3, 1, joins=1)),
        (
            ("index, memory", "index", "mem"),
            ("video, CPUs", "video", "cpus"),
            ("index, CPUs", "index", "cpus"),
            ("video, memory", "video", "mem"),
        ),
        {},
        ((1, "video joins"),),
        4,
    ),
    "tree": Scene(
        "ads and web share alike; within ads, prod has weight 3, test has 1",
        "share of all CPUs",
        (Team("ads/prod", leaves=3), Team("ads/test"), Team("web")),
        (("ads/prod", "ads/prod", "cpus"), ("ads/test", "ads/test", "cpus"), _WEB),
        {"ads/prod": RoleSettings(weight=3_000)},
        ((3, "ads/prod has no more work"),),
        5,
    ),
    "guarantee-and-limit": Scene(
        "prod is guaranteed 50 %, test is limited to 10 %",
        "share of all CPUs",
        (Team("batch"), Team("test"), Team("prod", joins=2)),
        (("prod", "prod", "cpus"), ("batch", "batch", "cpus"), ("test", "test", "cpus")),
        {
            "prod": RoleSettings(guarantee={"cpus": _ALL_CPUS // 2}),
            "test": RoleSettings(limit={"cpus": _ALL_CPUS // 10}),
        },
        ((2, "prod joins"),),
        5,
    ),
}
