"""Which faults there are for a cluster, how long they last, and to whom they are done.

Rule: by the seed alone it is decided which kind of fault comes next and for how long; whom it
meets may depend on who leads then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.real.cluster import Cluster
from tests.chaos.real.faults import (
    ClockJump,
    Fault,
    FullDisk,
    Isolate,
    Kill,
    KillShim,
    LostAnswers,
    LostOrders,
    Network,
    SlowSync,
    Stop,
    StopShim,
)

Chosen = Callable[[Cluster, random.Random, str], Fault]

WEATHERS = ("cut", "black-hole", "late", "reset")


@dataclass(frozen=True, slots=True)
class Course:
    """One kind of fault.

    Attributes:
        least_s, most_s: how long it lasts.
        make: the fault, given who leads.
    """

    name: str
    least_s: float
    most_s: float
    make: Chosen


@dataclass(frozen=True, slots=True)
class Menu:
    """All kinds, and those that cannot be had here, with why."""

    courses: tuple[Course, ...]
    skipped: Mapping[str, str]

    def only(self, part: str) -> Menu:
        """Those whose name holds `part`."""
        chosen = tuple(course for course in self.courses if part in course.name)
        return Menu(chosen, self.skipped)


def menu_of(cluster: Cluster) -> Menu:
    """What there is for this cluster on this machine."""
    courses = [
        Course("kill leader", 0, 1.5, lambda c, r, leader: Kill(c, r, [leader])),
        Course("stop leader", 0.5, 4, lambda c, r, leader: Stop(c, r, [leader])),
        Course("kill agent", 0, 2, lambda c, r, _: Kill(c, r, [_one(c.agents, r)])),
        Course("stop agent", 0.5, 6.5, lambda c, r, _: Stop(c, r, [_one(c.agents, r)])),
        Course("kill framework", 0, 2, lambda c, r, _: Kill(c, r, [_one(c.frameworks, r)])),
        Course("stop framework", 0.5, 4, lambda c, r, _: Stop(c, r, [_one(c.frameworks, r)])),
        Course("kill shim", 0, 0.1, lambda c, r, _: KillShim(c, r, [])),
        Course("stop shim", 0.5, 2, lambda c, r, _: StopShim(c, r, [])),
        Course("agent's network", 0.3, 4, lambda c, r, _: _cut(c, r, _one(c.agents, r))),
        Course("framework's network", 0.3, 4, lambda c, r, _: _cut(c, r, _one(c.frameworks, r))),
        Course("leader isolated", 0.3, 4, _isolated),
        Course("orders lost", 0.3, 1.5, lambda c, r, leader: LostOrders(c, r, [leader, *c.agents])),
        Course(
            "answers lost",
            0.5,
            2,
            lambda c, r, leader: LostAnswers(c, r, [_one(c.frameworks, r), leader]),
        ),
        Course("power cut", 0, 1, lambda c, r, _: Kill(c, r, [*c.masters, *c.agents])),
        *_with_etcd(cluster),
    ]
    skipped: dict[str, str] = {}
    if cluster.meddler is None:
        skipped |= dict.fromkeys(("slow fsync", "clock jump"), "no C compiler")
    else:
        courses.append(Course("slow fsync", 1, 4, _slow))
        courses.append(Course("clock jump", 0.5, 4, _jump))
    if cluster.disks:
        courses.append(
            Course("full disk", 0.5, 2, lambda c, r, _: FullDisk(c, r, [_one(c.disks, r)]))
        )
    else:
        skipped["full disk"] = "no tmpfs may be mounted"
    return Menu(tuple(courses), skipped)


def _with_etcd(cluster: Cluster) -> list[Course]:
    if not cluster.etcd:
        return []
    return [
        Course("kill follower", 0, 2, lambda c, r, leader: Kill(c, r, [_follower(c, r, leader)])),
        Course("leader without etcd", 1, 6, lambda c, r, leader: _cut(c, r, leader)),
        Course("kill etcd member", 0.5, 3, lambda c, r, _: Kill(c, r, [_one(c.etcd, r)])),
        Course("stop etcd member", 0.5, 4, lambda c, r, _: Stop(c, r, [_one(c.etcd, r)])),
        Course("kill etcd quorum", 0.5, 4, lambda c, r, _: Kill(c, r, r.sample([*c.etcd], 2))),
        Course("stop etcd quorum", 0.5, 5, lambda c, r, _: Stop(c, r, r.sample([*c.etcd], 2))),
    ]


def _cut(cluster: Cluster, rng: random.Random, client: str) -> Fault:
    return Network(cluster, rng, [client], rng.choice(WEATHERS))


def _isolated(cluster: Cluster, rng: random.Random, leader: str) -> Fault:
    return Isolate(cluster, rng, [leader], rng.choice(WEATHERS))


def _slow(cluster: Cluster, rng: random.Random, leader: str) -> Fault:
    return SlowSync(cluster, rng, [rng.choice([leader, *cluster.agents])])


def _jump(cluster: Cluster, rng: random.Random, leader: str) -> Fault:
    return ClockJump(cluster, rng, [rng.choice([leader, *cluster.agents])])


def _follower(cluster: Cluster, rng: random.Random, leader: str) -> str:
    return _one([name for name in cluster.masters if name != leader], rng)


def _one(names: Sequence[str] | Mapping[str, object], rng: random.Random) -> str:
    return rng.choice(list(names))
