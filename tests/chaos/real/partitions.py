"""Partitions: faults of the network between hosts, and their catalogue.

Rule: each round has at least one cut, in both directions or one. The checker's own host always
reaches everything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.chaos.real.cluster import Cluster
from tests.chaos.real.fault_catalogue import FaultCatalogue, Kind
from tests.chaos.real.faults import ClockJump, Fault, Kill, Stop
from tests.chaos.real.host_network import Rule

LOSSES = (0.02, 0.1, 0.3)
DELAYS_S = (0.05, 0.2, 1.0)

Sides = tuple[Sequence[str], Sequence[str]]


class Partition(Fault):
    """Rules for packets between two groups of hosts."""

    def __init__(
        self, cluster: Cluster, rng: random.Random, kind: str, sides: Sides, rules: Sequence[Rule]
    ) -> None:
        super().__init__(cluster, rng, ())
        self.kind, self._sides, self._rules = kind, sides, rules

    def __str__(self) -> str:
        one, other = ("+".join(side) for side in self._sides)
        return f"{self.kind} {one}|{other}"

    def begin(self) -> None:
        assert self.cluster.network is not None
        self.cluster.network.rules.extend(self._rules)

    def end(self) -> None:
        assert self.cluster.network is not None
        for rule in self._rules:
            if rule in self.cluster.network.rules:
                self.cluster.network.rules.remove(rule)


def partition_catalogue(cluster: Cluster) -> FaultCatalogue:
    """Return the faults of a cluster whose daemons have hosts."""
    cuts = (
        Kind("halves", 0.5, 8, _partition("cut", _halves, both_ways=True)),
        Kind("halves one way", 0.5, 8, _partition("cut-one-way", _halves, both_ways=False)),
        Kind("leader cut off", 0.5, 8, _partition("cut", _leader, both_ways=True)),
        Kind("leader one way", 0.5, 8, _partition("cut-one-way", _leader, both_ways=False)),
        Kind("leader from etcd", 0.5, 8, _partition("cut", _etcd, both_ways=True)),
        Kind("leader from etcd one way", 0.5, 8, _partition("cut-one-way", _etcd, both_ways=False)),
        Kind("members of etcd", 0.5, 8, _partition("cut", _members, both_ways=True)),
        Kind("agent one way", 0.5, 8, _partition("cut-one-way", _agent, both_ways=False)),
    )
    kinds = [
        *cuts,
        Kind("loss or delay", 1, 6, _bad_weather),
        Kind("kill leader", 0, 1.5, lambda c, r, leader: Kill(c, r, [leader])),
        Kind("stop leader", 0.5, 6, lambda c, r, leader: Stop(c, r, [leader])),
    ]
    if cluster.preload is None:
        return FaultCatalogue(tuple(kinds), {"clock step": "no C compiler"}, cuts)
    kinds.append(Kind("clock step", 0.5, 6, _step))
    return FaultCatalogue(tuple(kinds), {}, cuts)


def _partition(
    kind: str, sides_of: Callable[[Cluster, random.Random, str], Sides], *, both_ways: bool
) -> Callable[[Cluster, random.Random, str], Fault]:
    def make(cluster: Cluster, rng: random.Random, leader: str) -> Fault:
        one, other = sides_of(cluster, rng, leader)
        if not both_ways and rng.random() < 0.5:
            one, other = other, one
        rules = _both_ways(one, other, 1.0, 0.0)
        return Partition(cluster, rng, kind, (one, other), rules if both_ways else rules[:1])

    return make


def _halves(cluster: Cluster, rng: random.Random, _leader: str) -> Sides:
    return _split([*cluster.daemons()], rng)


def _leader(cluster: Cluster, _rng: random.Random, leader: str) -> Sides:
    return [leader], [name for name in cluster.daemons() if name != leader]


def _etcd(cluster: Cluster, _rng: random.Random, leader: str) -> Sides:
    return [leader], [*cluster.etcd]


def _members(cluster: Cluster, rng: random.Random, _leader: str) -> Sides:
    return _split([*cluster.etcd], rng)


def _agent(cluster: Cluster, rng: random.Random, _leader: str) -> Sides:
    return [rng.choice([*cluster.agents])], [*cluster.masters]


def _split(names: Sequence[str], rng: random.Random) -> Sides:
    shuffled = rng.sample(names, len(names))
    at = rng.randint(1, len(names) - 1)
    return sorted(shuffled[:at]), sorted(shuffled[at:])


def _bad_weather(cluster: Cluster, rng: random.Random, _leader: str) -> Fault:
    one, other = _halves(cluster, rng, "")
    loss, delay_s = rng.choice([(loss, 0.0) for loss in LOSSES] + [(0.0, d) for d in DELAYS_S])
    kind = f"loss({loss:g})" if loss else f"delay({delay_s:g})"
    return Partition(cluster, rng, kind, (one, other), _both_ways(one, other, loss, delay_s))


def _both_ways(one: Sequence[str], other: Sequence[str], loss: float, delay_s: float) -> list[Rule]:
    return [
        Rule(frozenset(source), frozenset(target), loss, delay_s)
        for source, target in ((one, other), (other, one))
    ]


def _step(cluster: Cluster, rng: random.Random, leader: str) -> Fault:
    return ClockJump(cluster, rng, [rng.choice([leader, *cluster.agents])])
