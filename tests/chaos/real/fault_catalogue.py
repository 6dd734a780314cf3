"""The kinds of faults for a cluster, their durations and their targets.

Rule: the seed alone decides which kind of fault comes next and how long it lasts. Its target may
depend on which master leads then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.real.cluster import Cluster
from tests.chaos.real.faults import (
    AuthorityStep,
    BrokenLog,
    ClockJump,
    Fault,
    FullDisk,
    Isolate,
    Kill,
    KillShim,
    LostAnswers,
    LostOrders,
    Network,
    Renewal,
    SlowSync,
    Stop,
    StopExecutor,
    StopShim,
)

Chosen = Callable[[Cluster, random.Random, str], Fault]

WEATHERS = ("cut", "black-hole", "late", "reset")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault.

    Attributes:
        least_s, most_s: bounds of its duration.
        make: creates the fault, given the leader.
    """

    name: str
    least_s: float
    most_s: float
    make: Chosen


@dataclass(frozen=True, slots=True)
class FaultCatalogue:
    """The kinds of faults, and those not available here with the reason.

    Attributes:
        always: kinds of faults that every round has as well.
    """

    kinds: tuple[Kind, ...]
    skipped: Mapping[str, str]
    always: tuple[Kind, ...] = ()

    def only(self, part: str) -> FaultCatalogue:
        """Return the kinds whose name contains `part`."""
        chosen = tuple(kind for kind in self.kinds if part in kind.name)
        return FaultCatalogue(chosen, self.skipped, self.always)


def catalogue_of(cluster: Cluster) -> FaultCatalogue:
    """Return the catalogue for this cluster on this machine."""
    kinds = [
        Kind("kill leader", 0, 1.5, lambda c, r, leader: Kill(c, r, [leader])),
        Kind("stop leader", 0.5, 4, lambda c, r, leader: Stop(c, r, [leader])),
        Kind("kill agent", 0, 2, lambda c, r, _: Kill(c, r, [_one(c.agents, r)])),
        Kind("stop agent", 0.5, 6.5, lambda c, r, _: Stop(c, r, [_one(c.agents, r)])),
        Kind("kill framework", 0, 2, lambda c, r, _: Kill(c, r, [_one(c.frameworks, r)])),
        Kind("stop framework", 0.5, 4, lambda c, r, _: Stop(c, r, [_one(c.frameworks, r)])),
        Kind("kill shim", 0, 0.1, lambda c, r, _: KillShim(c, r, [])),
        Kind("stop shim", 0.5, 2, lambda c, r, _: StopShim(c, r, [])),
        Kind("stop executor", 0.5, 4, lambda c, r, _: StopExecutor(c, r, [])),
        Kind("agent's network", 0.3, 4, lambda c, r, _: _cut(c, r, _one(c.agents, r))),
        Kind("framework's network", 0.3, 4, lambda c, r, _: _cut(c, r, _one(c.frameworks, r))),
        Kind("leader isolated", 0.3, 4, _isolated),
        Kind("orders lost", 0.3, 1.5, lambda c, r, leader: LostOrders(c, r, [leader, *c.agents])),
        Kind(
            "answers lost",
            0.5,
            2,
            lambda c, r, leader: LostAnswers(c, r, [_one(c.frameworks, r), leader]),
        ),
        Kind("power cut", 0, 1, lambda c, r, _: Kill(c, r, [*c.masters, *c.agents])),
        *_with_etcd(cluster),
        *(renewals := _with_tls(cluster)),
    ]
    skipped: dict[str, str] = {}
    if cluster.preload is None:
        names = ("slow fsync", "clock jump", "broken log")
        skipped |= dict.fromkeys(names, "no C compiler")
    else:
        kinds.append(Kind("slow fsync", 1, 4, _slow))
        kinds.append(Kind("clock jump", 0.5, 4, _jump))
        kinds.append(
            Kind("broken log", 0.5, 4, lambda c, r, _: BrokenLog(c, r, [*c.masters, *c.agents]))
        )
    if cluster.disks:
        kinds.append(Kind("full disk", 0.5, 2, lambda c, r, _: FullDisk(c, r, [_one(c.disks, r)])))
    else:
        skipped["full disk"] = "no tmpfs may be mounted"
    return FaultCatalogue(tuple(kinds), skipped, tuple(renewals))


def _with_etcd(cluster: Cluster) -> list[Kind]:
    if not cluster.etcd:
        return []
    return [
        Kind("kill follower", 0, 2, lambda c, r, leader: Kill(c, r, [_follower(c, r, leader)])),
        Kind("leader without etcd", 1, 6, lambda c, r, leader: _cut(c, r, leader)),
        Kind("kill etcd member", 0.5, 3, lambda c, r, _: Kill(c, r, [_one(c.etcd, r)])),
        Kind("stop etcd member", 0.5, 4, lambda c, r, _: Stop(c, r, [_one(c.etcd, r)])),
        Kind("kill etcd quorum", 0.5, 4, lambda c, r, _: Kill(c, r, r.sample([*c.etcd], 2))),
        Kind("stop etcd quorum", 0.5, 5, lambda c, r, _: Stop(c, r, r.sample([*c.etcd], 2))),
    ]


def _with_tls(cluster: Cluster) -> list[Kind]:
    if cluster.certificates is None:
        return []
    # Daemons look at their files once a second, and only then is the next step due.
    touched = ["certificates"]
    return [
        Kind("renew certificates", 2, 3, lambda c, r, _: Renewal(c, r, touched)),
        Kind(
            "replace authority of certificates", 2, 3, lambda c, r, _: AuthorityStep(c, r, touched)
        ),
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
