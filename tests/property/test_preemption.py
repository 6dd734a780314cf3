"""Preemption ends, takes no framework below its entitlement, and needs every victim.

Early frameworks fill random clusters with tasks that never end; late frameworks come afterwards.
The tests compute shares in fractions from the running tasks, and take entitlements from the tree.
Every preemption must reduce the sum of the frameworks' shortfalls, so preemptions end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from fractions import Fraction

import pytest

from croupier.master.allocator import Allocator, Rules
from croupier.master.allocator.node import Leaf, Node
from croupier.master.allocator.preemption import Holding, PreemptionPlan
from croupier.master.allocator.preemptor import Preemptor
from croupier.master.allocator.starvation import PreemptionRules
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from tests.harness.allocator_invariants import check_allocator
from tests.harness.effort import portion

NAMES = ("cpus", "mem", "gpus")
TOLERANCE = Fraction(4, 5)


@dataclass
class Cluster:
    """An allocator, and tasks that run until they are preempted."""

    allocator: Allocator
    preemptor: Preemptor
    tasks: dict[tuple[FrameworkId, str], Holding] = field(default_factory=dict)
    launched: int = 0

    def holdings(self, leaf: Leaf) -> list[Holding]:
        return [task for task in self.tasks.values() if task.leaf is leaf]

    def deal(self, now: float) -> None:
        """Allocate, and launch every unit at once."""
        while self.allocator.has_dirty_agents:
            for grant in self.allocator.run(now):
                leaf = self.allocator._tree.leaves[grant.framework_id, grant.role]
                place = (grant.framework_id, grant.role, grant.agent_id)
                launched = []
                for unit, number in grant.units:
                    for _ in range(number):
                        self.launched += 1
                        key = f"t{self.launched:05}"
                        since = now + self.launched / 1e6
                        task = Holding(leaf, grant.agent_id, unit, key, since)
                        self.tasks[grant.framework_id, key] = task
                        self.allocator.charges.launch(*place, unit)
                        launched.append(unit)
                self.allocator.settle_offers(*place, grant.units, launched)
        check_allocator(self.allocator)

    def end(self, victim: Holding) -> None:
        key = (victim.leaf.framework_id, victim.key)
        del self.tasks[key]
        self.allocator.charges.release(
            *key[:1], victim.leaf.role, victim.agent_id, victim.resources
        )
        self.preemptor.ended(key)

    def lack(self) -> Fraction:
        """Return the sum of the frameworks' shortfalls from their tolerated shares."""
        tree = self.allocator._tree
        return sum(
            (
                max(Fraction(0), TOLERANCE * entitled - tree.share_of(node))
                for node, entitled in tree.entitlements().items()
                if isinstance(node, Leaf)
            ),
            Fraction(0),
        )


def make_cluster(lots: random.Random, *, guarantees: bool) -> tuple[Cluster, list[FrameworkId]]:
    """Return a random cluster that early frameworks have filled, and the late frameworks."""
    width = lots.randint(1, 3)
    capacity = {name: lots.randint(8, 30) for name in NAMES[:width]}
    roles = ["a", "a/x", "a/y", "b", "b/x", "c"]
    settings = {
        Role(role): RoleSettings(
            lots.randint(1, 3) * 1000,
            guarantee={"cpus": lots.randint(1, 8) * 1000}
            if guarantees and "/" not in role and lots.random() < 0.5
            else {},
        )
        for role in roles
    }
    rules = Rules(hold_s=0, scarce=frozenset(), remembers_misfits=True)
    allocator = Allocator(None, rules, settings)
    preemptor = allocator.preemptor(PreemptionRules(True, TOLERANCE, at_once=1))
    cluster = Cluster(allocator, preemptor)
    for number in range(lots.randint(1, 6)):
        total = {name: milli * 1000 for name, milli in capacity.items()}
        allocator.add_agent(AgentId(f"n{number}"), Resources(total))
    came: list[FrameworkId] = []
    for number in range(lots.randint(3, 6)):
        framework_id = FrameworkId(f"f{number}")
        unit = {name: lots.randint(0, 5) * 1000 for name in capacity}
        unit["cpus"] = max(unit["cpus"], 1000)
        allocator.add_framework(framework_id, (Role(lots.choice(roles)),))
        allocator.set_demand(framework_id, (Demand(Resources(unit)),))
        came.append(framework_id)
    first = lots.randint(1, len(came) - 1)
    for framework_id in came[:first]:
        allocator.connect(framework_id, True)
    cluster.deal(0.0)
    return cluster, came[first:]


def check_plan(cluster: Cluster, plan: PreemptionPlan) -> None:
    """Check that every victim is needed, and that it and its roles keep their entitlements."""
    tree = cluster.allocator._tree
    entitled = tree.entitlements()
    starving = plan.starving.leaf
    common = set(starving.path)
    lost: dict[Node, dict[str, int]] = {}
    for victim in plan.victims:
        assert victim.agent_id == plan.agent_id
        assert victim.leaf is not starving
        for node in victim.leaf.path:
            if node in common:
                break
            held = lost.setdefault(node, dict(node.held))
            for name, milli in victim.resources.scalars.items():
                held[name] -= milli
    for node, held in lost.items():
        if not plan.starving.by_guarantee:
            assert tree.totals.share(held) >= entitled[node], node
        guarantee = node.settings.guarantee
        assert not guarantee or any(held[name] >= least for name, least in guarantee.items())
    free = cluster.allocator.queries.free(plan.agent_id).scalars
    freed = dict(free)
    for victim in plan.victims:
        for name, milli in victim.resources.scalars.items():
            freed[name] = freed.get(name, 0) + milli
    assert all(freed.get(name, 0) >= milli for name, milli in plan.room.scalars.items())
    for victim in plan.victims:
        without = {name: freed[name] - victim.resources[name] for name in freed}
        assert any(without.get(n, 0) < milli for n, milli in plan.room.scalars.items())


def run(seed: int, *, guarantees: bool) -> int:
    """Connect the late frameworks, preempt until none starves, and count the preemptions."""
    cluster, late = make_cluster(random.Random(seed), guarantees=guarantees)
    for framework_id in late:
        cluster.allocator.connect(framework_id, True)
    cluster.deal(1.0)
    now, preemptions = 1.0, 0
    cluster.preemptor.look(cluster.holdings, now)
    while True:
        now += 100.0
        lacked = cluster.lack()
        plans = cluster.preemptor.look(cluster.holdings, now)
        if not plans:
            return preemptions
        (plan,) = plans
        check_plan(cluster, plan)
        for victim in plan.victims:
            cluster.end(victim)
        cluster.deal(now)
        if not guarantees:
            assert cluster.lack() < lacked
        preemptions += 1
        assert preemptions < 2000


def run_many(seeds: int) -> list[int]:
    return [run(seed, guarantees=False) for seed in range(seeds)]


def test_preemption_by_share_ends_and_every_step_helps() -> None:
    counts = run_many(portion(250))
    print(f"preemption by share: {sum(counts)} guarded checks, at most {max(counts)} in one run")
    assert sum(counts) > portion(1000)


def test_preemption_for_guarantees_ends() -> None:
    counts = [run(seed, guarantees=True) for seed in range(portion(250))]
    print(f"preemption with guarantees: {sum(counts)} guarded checks, at most {max(counts)}")
    assert sum(counts) > portion(1000)


def test_the_checks_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """If every victim is legal, preemption takes a framework below its entitlement."""
    from croupier.master.allocator import preemption

    monkeypatch.setattr(preemption._ShapeSearch, "_is_legal", lambda self, victim: True)
    with pytest.raises(AssertionError):
        run_many(100)
