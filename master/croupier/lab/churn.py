"""Pools under churn: tasks end at random or client by client, and the policy refills.

Each node has two entitlements: by weights alone (W), and by weights and the demands of its
siblings (E). A policy that keeps them leaves no node below either by more than a few tasks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from croupier.lab.engine_rule import EngineRule
from croupier.lab.policies import Collapsed, MinSatWeights, NaiveHdrf, Unrotated
from croupier.lab.solvers.filling import HDRF, Filling, Machines, Rule, demand_of
from croupier.lab.solvers.pools import Forest, Pool

MakeRule = Callable[[Filling], Rule]

# By name: policies of the engine's tree, and H-DRF by its definition.
RULES: dict[str, MakeRule] = {
    "naive HDRF": lambda filling: EngineRule(filling.forest, NaiveHdrf()),
    "collapsed weights": lambda filling: EngineRule(filling.forest, Collapsed()),
    "min-sat(weights)": lambda filling: EngineRule(filling.forest, MinSatWeights()),
    "min-sat(entitlement)": lambda filling: EngineRule(filling.forest, Unrotated()),
    "H-DRF": lambda filling: HDRF(filling.machines.left),
}


@dataclass(frozen=True, slots=True)
class ChurnPlan:
    """A tree to grow: nodes by path, pools before their clients."""

    name: str
    capacity: tuple[int, ...]
    weights: dict[str, int]
    demands: dict[str, tuple[int, ...]]

    def grow(self) -> Filling:
        """Return the tree on one machine, without tasks."""
        capacity = tuple(Fraction(amount) for amount in self.capacity)
        forest = Forest(capacity)
        for path, weight in self.weights.items():
            node = forest.add(path)
            node.weight = Fraction(weight)
            if path in self.demands:
                node.demand = tuple(Fraction(need) for need in self.demands[path])
        return Filling(forest, Machines([capacity]))


@dataclass(slots=True)
class Tally:
    """The nodes below their entitlements; `worst_w` is the least share over W, `worst_e` over E."""

    nodes: int = 0
    below_w: int = 0
    below_e: int = 0
    worst_w: float = 1.0
    worst_e: float = 1.0
    names: list[str] = field(default_factory=list)

    def add(self, plan: ChurnPlan, forest: Forest) -> None:
        """Count the nodes of a plan's forest, in which all clients still want more."""
        by_demand = EngineRule(plan.grow().forest, Unrotated()).entitlements()
        by_weight = forest.parts_by_weight(lambda _: True)
        clients = forest.root.clients()
        slack = 2 * sum((forest.dominant(c, demand_of(c)) for c in clients), Fraction(0))
        for node in forest.root.nodes():
            if node is forest.root:
                continue
            share = forest.dominant(node)
            self.nodes += 1
            self.below_w += share + slack < by_weight[node]
            self.below_e += share + slack < by_demand[node.path]
            if share + slack < by_weight[node]:
                self.names.append(node.path)
            self.worst_w = min(self.worst_w, float(share / by_weight[node]))
            self.worst_e = min(self.worst_e, float(share / by_demand[node.path]))


class Churn:
    """A filled tree whose tasks end one by one."""

    def __init__(self, plan: ChurnPlan, make_rule: MakeRule, chance: random.Random) -> None:
        self.filling = plan.grow()
        self._rule = make_rule(self.filling)
        self._chance = chance
        self._running: list[Pool] = []
        self._refill()

    def drain(self) -> None:
        """End all tasks of a random client one after the other; it still wants more."""
        client = self._chance.choice(list(self.filling.forest.root.clients()))
        for _ in range(client.tasks):
            self.end_one(client.path)

    def wear(self, steps: int) -> None:
        """End random tasks."""
        for _ in range(steps):
            index = self._chance.randrange(len(self._running))
            self._running[index], self._running[-1] = self._running[-1], self._running[index]
            self.filling.finish(self._running.pop())
            self._refill()

    def end_one(self, path: str) -> None:
        """End a task of the client, if one runs."""
        client = self.filling.forest.by_path[path]
        if client.tasks:
            self._running.remove(client)
            self.filling.finish(client)
            self._refill()

    def _refill(self) -> None:
        self.filling.fill(self._rule, self._running.append)


def random_plan(chance: random.Random, name: str) -> ChurnPlan:
    """Return a random tree of pools whose siblings often need different resources."""
    width = chance.randint(2, 3)
    weights: dict[str, int] = {}
    demands: dict[str, tuple[int, ...]] = {}

    def client(path: str) -> None:
        need = [chance.randint(0, 3) for _ in range(width)]
        if chance.random() < 0.5 or not any(need):
            need = [0] * width
            need[chance.randrange(width)] = chance.randint(1, 3)
        demands[path] = tuple(need)

    def node(path: str, depth: int, likelihood: float) -> None:
        weights[path] = chance.choice((1, 2, 3))
        if depth and chance.random() < likelihood:
            for index in range(chance.randint(2, 3)):
                node(f"{path}/{index}", depth - 1, 0.4)
        else:
            client(path)

    for index in range(chance.randint(2, 3)):
        node(f"p{index}", 2, 0.7)
    capacity = tuple(chance.randint(100, 200) for _ in range(width))
    return ChurnPlan(name, capacity, weights, demands)


def churned(plan: ChurnPlan, make_rule: MakeRule, chance: random.Random, *, steps: int) -> Forest:
    """Fill a tree, drain clients and wear it; return its end."""
    churn = Churn(plan, make_rule, chance)
    for _ in range(3):
        churn.drain()
        churn.wear(steps // 3)
    return churn.filling.forest
