"""The forest, the machines and the rule of a vector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction

from croupier.lab import policies
from croupier.lab.engine_cluster import EngineCluster
from croupier.lab.engine_rule import EngineRule
from croupier.lab.solvers.filling import HDRF, Filling, Machines, Rule, demand_of
from croupier.lab.solvers.pools import Forest
from croupier.lab.vectors.outcome import resource_index
from croupier.lab.vectors.vector import Unreadable, Vector, shortened
from croupier.master.allocator import Rules
from croupier.master.allocator.policies import Fifo, Policy
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId

FLAT = ("drf", "drf-neverskip", "asset", "single")
DEEP = ("flat", "naive-hdrf", "min-sat-weights", "min-sat-entitlement", "h-drf")
# Labels of answers: from a definition outside the engine, from its tree, from its allocator.
REFERENCE = "reference"
ENGINE = "engine"
ALLOCATOR = "allocator"


def forest_of(vector: Vector) -> Forest:
    """Return a vector's clients and pools, with nothing running; raises Unreadable if malformed."""
    if not vector.clients:
        raise Unreadable("`demands` is empty or missing")
    if not vector.capacity:
        raise Unreadable("`capacity` is missing")
    forest = Forest(vector.capacity)
    for client in vector.clients:
        node = forest.add(client)
        node.demand = vector.demands.get(client, (Fraction(0),) * len(vector.capacity))
        node.declared = vector.hints.get(client)
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
    """Return clients on machines with `initial` tasks running; raises Unreadable without room."""
    if vector.placement not in (None, "first-fit"):
        raise Unreadable(f"placement {shortened(vector.placement)} is for mode fifo")
    forest = forest_of(vector)
    for client in forest.root.clients():
        if client.wants and client.backlog is None and not any(demand_of(client)):
            raise Unreadable(f"a task of {shortened(client.path)} takes nothing, and never ends")
    filling = Filling(forest, Machines(vector.machines()))
    for path, count in vector.initial.items():
        for _ in range(count):
            filling.start(forest.by_path[path], initial_machine(vector, filling.machines, path))
    filling.schedule.clear()
    return filling


def initial_machine(vector: Vector, machines: Machines, path: str) -> int:
    """Return the first machine with room for an `initial` task; raises Unreadable without one."""
    index = machines.first_fit(vector.demands[path])
    if index is None:
        count = vector.initial[path]
        raise Unreadable(f"`initial`: {count} tasks of {shortened(path)} do not fit")
    return index


def rule_of(vector: Vector, policy: str, filling: Filling) -> tuple[str, Rule]:
    """Return the rule of a policy, with its label, the engine's or H-DRF's; raises Unreadable."""
    check_policy(vector, policy)
    if policy == "h-drf":
        return REFERENCE, HDRF(filling.machines.left)
    return ENGINE, engine_rule(vector, policy, filling.forest)


def engine_rule(vector: Vector, policy: str, forest: Forest) -> EngineRule:
    """Return the engine's tree under a policy; raises as `rule_of`."""
    with representable():
        return EngineRule(forest, _engine_policy(vector, policy))


def engine_cluster(vector: Vector, policy: str, order: str = "arrival") -> EngineCluster:
    """Return the allocator with the vector's clients and machines, idle; raises as `rule_of`."""
    rules = Rules(hold_s=0.0, order=order, scarce=frozenset(), remembers_misfits=True)
    found = _engine_policy(vector, policy)
    with representable():
        return EngineCluster(forest_of(vector), vector.machines(), found, rules)


@contextmanager
def representable() -> Iterator[None]:
    """Refuse a vector whose weights or amounts the engine refuses."""
    try:
        yield
    except InvalidRequest as error:
        raise Unreadable(f"the engine cannot represent this vector: {error}") from None


def one_machine(vector: Vector, policy: str) -> EngineCluster | None:
    """Return the engine's allocator with a vector's single machine and its `initial` tasks.

    None for several machines, which the allocator fills one after the other; for H-DRF; and if
    a task takes nothing. Raises as `rule_of`.
    """
    if vector.machines() != [vector.capacity] or policy in ("drf-neverskip", "h-drf"):
        return None
    if not all(any(demand) for demand in vector.demands.values()):
        return None
    cluster = engine_cluster(vector, policy)
    for path, count in vector.initial.items():
        for _ in range(count):
            cluster.found(cluster.forest.by_path[path], AgentId("a0"))
    return cluster


def check_policy(vector: Vector, policy: str) -> None:
    """Raise Unreadable if a policy is unknown, or does not apply to the vector's tree."""
    name, colon, _ = policy.partition(":")
    if name not in (*FLAT, *DEEP) or bool(colon) != (name == "single"):
        raise Unreadable(f"policy {shortened(policy)} is not known in mode {vector.mode}")
    if name in FLAT and vector.pools():
        raise Unreadable(f"policy {name} is flat; it says nothing about pools")
    if name in ("flat", "h-drf"):
        if vector.guarantee:
            raise Unreadable(f"policy {name} knows no guarantees")
        if _has_weights_by_resource(vector):
            raise Unreadable(f"policy {name} knows no weights by resource")


def _engine_policy(vector: Vector, policy: str) -> Policy:
    name, _, argument = policy.partition(":")
    if name in ("asset", "single", "min-sat-weights") and _has_weights_by_resource(vector):
        raise Unreadable(f"policy {name} knows no weights by resource")

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
        "fifo": Fifo,
    }
    return makers[name]()


def _has_weights_by_resource(vector: Vector) -> bool:
    return any(path not in vector.are_scalar for path in vector.weights)


def _whole(backlog: Fraction | None, client: str) -> int | None:
    if backlog is not None and backlog.denominator != 1:
        raise Unreadable(f"`backlog` of {shortened(client)} is {backlog}, not a whole number")
    return None if backlog is None else backlog.numerator
