"""Modes that look at one state: the entitlement of each node, and the order of clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from croupier.lab.solvers.pools import Forest, Pool
from croupier.lab.vectors.facts import Got
from croupier.lab.vectors.forests import ENGINE, REFERENCE, check_policy, engine_rule, forest_of
from croupier.lab.vectors.modes import Runs
from croupier.lab.vectors.vector import Unreadable, Vector, number, shortened

# The engine rounds directions; a number this near, relative to it, counts as equal.
_ROUNDING = Fraction(1, 10**3)


def run_entitlement(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:  # noqa: ARG001
    """Find each node's part of the cluster, among the nodes that are alive."""
    forest = loaded_forest(vector)
    if policy in ("entitlement", "min-sat-entitlement"):
        exact = engine_rule(vector, "min-sat-entitlement", forest).entitlements()
        found = {path: exact.get(path, Fraction(0)) for path in forest.by_path if path}
        yield ENGINE, [("entitlement", lambda wanted: _rounded_to(wanted, found))]
        return
    parts = weight_parts(forest, policy)
    by_path: dict[str, Got] = {
        path: parts.get(node, Fraction(0)) for path, node in forest.by_path.items() if path
    }
    yield REFERENCE, [("entitlement", lambda _: by_path)]


def weight_parts(forest: Forest, policy: str) -> dict[Pool, Fraction]:
    """Return each node's part of the cluster under a policy that looks at weights alone.

    Raises:
        Unreadable: if the policy is not one of these.
    """
    if policy == "min-sat-weights":
        return forest.parts_by_weight(lambda node: node.is_alive)
    if policy == "flat":
        return forest.parts_by_weight(lambda _: True)
    raise Unreadable(f"policy {shortened(policy)} has no entitlements")


def _rounded_to(wanted: object, found: Mapping[str, Fraction]) -> Mapping[str, Got]:
    """Return `found`, with the expected number where that is within the engine's rounding."""
    expected = wanted if isinstance(wanted, dict) else {}
    return {path: _snapped(expected.get(path), got) for path, got in found.items()}


def _snapped(expected: object, got: Fraction) -> Fraction:
    try:
        exact = number(expected, "an entitlement")
    except Unreadable:
        return got
    return exact if abs(got - exact) <= exact * _ROUNDING else got


def run_order(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:  # noqa: ARG001
    """Sort clients by need, pool by pool."""
    check_policy(vector, policy)
    if policy in ("flat", "h-drf"):
        raise Unreadable(f"mode order does not know policy {policy}")
    found = [client.path for client in engine_rule(vector, policy, loaded_forest(vector)).order()]
    yield ENGINE, [("order", lambda _: found)]


def loaded_forest(vector: Vector) -> Forest:
    """Return the forest with the clients' use: `usage` amounts and `initial` tasks."""
    forest = forest_of(vector)
    for path, amounts in vector.usage.items():
        forest.hold(forest.by_path[path], amounts)
    for path, count in vector.initial.items():
        forest.start(forest.by_path[path], count)
    return forest
