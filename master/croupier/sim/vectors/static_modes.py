"""Modes that look at a state: who is entitled to what, and who stands before whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from croupier.sim.solvers.filling import Filling, Machines
from croupier.sim.solvers.pools import Forest, Pool
from croupier.sim.solvers.rules import (
    Collapsed,
    Key,
    MinSatisfaction,
    MinSatisfactionByUse,
    Naive,
)
from croupier.sim.vectors.facts import Got
from croupier.sim.vectors.forests import ENGINE, REFERENCE, engine_rule, forest_of, reference_rule
from croupier.sim.vectors.modes import FactsOnly, Runs
from croupier.sim.vectors.numbers import Unreadable, shortened
from croupier.sim.vectors.vector import Vector

_ROUNDING = Fraction(1, 10**3)


def run_entitlement(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:  # noqa: ARG001
    """What part of the cluster each node is promised, over those that are alive."""
    forest = _standing(vector)
    if policy in ("entitlement", "min-sat-entitlement"):
        found = MinSatisfactionByUse(resolution=None).entitlements(forest)
    elif policy == "min-sat-weights":
        found = MinSatisfaction().entitlements(forest)
    elif policy == "flat":
        found = Collapsed().weights(forest)
    else:
        raise Unreadable(f"policy {shortened(policy)} has no entitlements")
    by_path: dict[str, Got] = {
        node.path: found.get(node, Fraction(0)) for node in forest.by_path.values() if node.path
    }
    yield REFERENCE, FactsOnly([("entitlement", lambda _: by_path)])
    engine = engine_rule(vector, "min-sat-entitlement", forest)
    if engine is not None and policy in ("entitlement", "min-sat-entitlement"):
        # The engine rounds directions; where that moves an entitlement, it is checked as near.
        theirs = engine.entitlements()
        snapped: dict[str, Got] = {
            path: exact if abs(theirs.get(path, Fraction(0)) - exact) <= exact * _ROUNDING else got
            for path, exact in ((n.path, found.get(n, Fraction(0))) for n in forest.root.nodes())
            for got in (theirs.get(path, Fraction(0)),)
        }
        yield ENGINE, FactsOnly([("entitlement", lambda _: snapped)])


def run_order(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:  # noqa: ARG001
    """Clients from the neediest on, pool by pool, each pool where it stands."""
    forest = _standing(vector)
    reference = [client.path for client in _ordered(vector, policy, forest)]
    yield REFERENCE, FactsOnly([("order", lambda _: list(reference))])
    engine = engine_rule(vector, policy, forest)
    if engine is not None:
        theirs = [client.path for client in engine.order()]
        yield ENGINE, FactsOnly([("order", lambda _: theirs)])


def _standing(vector: Vector) -> Forest:
    """The forest with what clients hold: `usage` amounts and `initial` tasks."""
    forest = forest_of(vector)
    for path, amounts in vector.usage.items():
        forest.hold(forest.by_path[path], amounts)
    for path, count in vector.initial.items():
        forest.start(forest.by_path[path], count)
    return forest


def _ordered(vector: Vector, policy: str, forest: Forest) -> list[Pool]:
    if policy in ("flat", "h-drf"):
        raise Unreadable(f"mode order does not know policy {policy}")
    rule = reference_rule(vector, policy, Filling(forest, Machines([])))
    assert isinstance(rule, Naive)

    def wants(client: Pool) -> bool:
        return client.wants

    def below(node: Pool) -> list[Pool]:
        if node.is_client:
            return [node]
        keys = {child: rule.key(forest, child, wants) for child in node.children}
        ranked = sorted(keys, key=_by_key(keys, forest))
        return [client for child in ranked for client in below(child)]

    return below(forest.root)


def _by_key(keys: dict[Pool, Key | None], forest: Forest) -> Callable[[Pool], tuple[Key, int]]:
    last: Key = (2, Fraction(0))
    return lambda node: (keys[node] or last, forest.rank[node])
