"""A vector as a forest with machines, and the rules that its policies name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from croupier.master.allocator import Rules
from croupier.master.allocator.policies import Policy
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId
from croupier.sim import policies
from croupier.sim.engine_cluster import EngineCluster
from croupier.sim.engine_rule import EngineRule
from croupier.sim.solvers.filling import Filling, Machines, demand_of
from croupier.sim.solvers.pools import Forest
from croupier.sim.solvers.rules import (
    HDRF,
    Collapsed,
    MinSatisfaction,
    MinSatisfactionByUse,
    Naive,
    Rule,
    share_of,
    sum_of_shares,
)
from croupier.sim.vectors.numbers import Unreadable, shortened
from croupier.sim.vectors.outcome import resource_index
from croupier.sim.vectors.vector import Vector

FLAT = ("drf", "drf-neverskip", "asset", "single")
DEEP = ("flat", "naive-hdrf", "min-sat-weights", "min-sat-entitlement", "h-drf")
REFERENCE = "reference"
ENGINE = "engine"
ALLOCATOR = "allocator"


def forest_of(vector: Vector) -> Forest:
    """The clients and pools of a vector, before anything runs.

    Raises:
        Unreadable: if there are no clients, or a backlog is not whole.
    """
    if not vector.clients:
        raise Unreadable("`demands` is empty or missing")
    if not vector.capacity:
        raise Unreadable("`capacity` is missing")
    forest = Forest(vector.capacity)
    for client in vector.clients:
        node = forest.add(client)
        node.demand = vector.demands.get(client, (Fraction(0),) * len(vector.capacity))
        node.declared = vector.declared.get(client)
        node.backlog = _whole(vector.backlog.get(client), client)
        node.is_paused = not vector.is_active(client)
    for path, node in forest.by_path.items():
        node.guarantee = vector.guarantee.get(path)
        if path in vector.are_scalar:
            node.weight = vector.weight(path)[0]
        elif path in vector.weights:
            node.factors = vector.weight(path)
    forest.prefer(vector.tie_break)
    return forest


def filling_of(vector: Vector) -> Filling:
    """The vector's clients on its machines, with what runs before.

    Raises:
        Unreadable: if that does not fit, or something could be started without end.
    """
    if vector.placement not in (None, "first-fit"):
        raise Unreadable(f"placement {shortened(vector.placement)} is for mode fifo")
    forest = forest_of(vector)
    for client in forest.root.clients():
        if client.wants and client.backlog is None and not any(demand_of(client)):
            raise Unreadable(f"a task of {shortened(client.path)} takes nothing, and never ends")
    filling = Filling(forest, Machines(vector.machines()))
    for path, count in vector.initial.items():
        client = forest.by_path[path]
        for _ in range(count):
            index = filling.machines.first_fit(demand_of(client))
            if index is None:
                raise Unreadable(f"`initial`: {count} tasks of {shortened(path)} do not fit")
            filling.start(client, index)
    filling.schedule.clear()
    return filling


def reference_rule(vector: Vector, policy: str, filling: Filling) -> Rule:
    """The rule of a policy, by its definition.

    Raises:
        Unreadable: if it is unknown, or says nothing about a tree such as this.
    """
    name, _, argument = policy.partition(":")
    _check_policy(vector, policy)
    if name == "h-drf":
        return HDRF(filling.machines.left)
    if name == "asset":
        return Naive(sum_of_shares)
    if name == "single":
        return Naive(share_of(resource_index(vector, argument)))
    rules: dict[str, Callable[[], Rule]] = {
        "flat": Collapsed,
        "min-sat-weights": MinSatisfaction,
        "min-sat-entitlement": MinSatisfactionByUse,
    }
    return rules.get(name, Naive)()


def engine_rule(vector: Vector, policy: str, forest: Forest) -> EngineRule | None:
    """The engine's tree under a policy; None if it has none such, or cannot hold the numbers."""
    found = _engine_policy(vector, policy)
    try:
        return None if found is None else EngineRule(forest, found)
    except InvalidRequest:
        return None


def allocator_of(vector: Vector, policy: str) -> EngineCluster | None:
    """The engine's allocator on a vector of one machine, with what runs before.

    None as of `engine_rule`, or if there are several machines: it deals one after the other.
    """
    machines = vector.machines()
    if len(machines) != 1 or machines[0] != vector.capacity or policy == "drf-neverskip":
        return None
    if not all(any(demand) for demand in vector.demands.values()):
        return None
    found = _engine_policy(vector, policy)
    if found is None:
        return None
    forest = forest_of(vector)
    try:
        cluster = EngineCluster(forest, machines, found, Rules(hold_s=0.0, scarce=frozenset()))
    except InvalidRequest:
        return None
    for path, count in vector.initial.items():
        for _ in range(count):
            cluster.found(forest.by_path[path], AgentId("a0"))
    return cluster


def _engine_policy(vector: Vector, policy: str) -> Policy | None:
    name, _, argument = policy.partition(":")
    by_resource = any(path not in vector.are_scalar for path in vector.weights)
    if by_resource and name in ("asset", "single", "flat", "min-sat-weights"):
        return None

    def single() -> Policy:
        return policies.UnrotatedSingle(f"r{resource_index(vector, argument)}")

    makers: dict[str, Callable[[], Policy]] = {
        "drf": policies.Unrotated,
        "drf-neverskip": policies.Unrotated,
        "asset": policies.UnrotatedAsset,
        "single": single,
        "flat": policies.Collapsed,
        "naive-hdrf": policies.NaiveHdrf,
        "min-sat-weights": policies.MinSatWeights,
        "min-sat-entitlement": policies.Unrotated,
        "slots": policies.UnrotatedSlots,
    }
    return makers[name]() if name in makers else None


def each_way(vector: Vector, policy: str) -> Iterator[tuple[str, Filling, Rule]]:
    """The vector under a policy: by definition and, where it has the policy, by the engine."""
    filling = filling_of(vector)
    yield REFERENCE, filling, reference_rule(vector, policy, filling)
    filling = filling_of(vector)
    engine = engine_rule(vector, policy, filling.forest)
    if engine is not None:
        yield ENGINE, filling, engine
        engine.catch_up()
        engine.tree.check()


def _check_policy(vector: Vector, policy: str) -> None:
    name, colon, _ = policy.partition(":")
    if name not in (*FLAT, *DEEP) or bool(colon) != (name == "single"):
        raise Unreadable(f"policy {shortened(policy)} is not known in mode {vector.mode}")
    if name in FLAT and vector.pools():
        raise Unreadable(f"policy {name} is flat; it says nothing about pools")
    if name in ("flat", "h-drf"):
        if vector.guarantee:
            raise Unreadable(f"policy {name} knows no guarantees")
        if any(path not in vector.are_scalar for path in vector.weights):
            raise Unreadable(f"policy {name} knows no weights by resource")


def _whole(backlog: Fraction | None, client: str) -> int | None:
    if backlog is not None and backlog.denominator != 1:
        raise Unreadable(f"`backlog` of {shortened(client)} is {backlog}, not a whole number")
    return None if backlog is None else backlog.numerator
