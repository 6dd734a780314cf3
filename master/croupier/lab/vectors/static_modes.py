"""Modes that look at one state: entitlements of nodes, the order of clients, and envy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from croupier.lab.solvers.pools import Forest
from croupier.lab.vectors.facts import Fact, Got
from croupier.lab.vectors.forests import ENGINE, REFERENCE, check_policy, engine_rule, forest_of
from croupier.lab.vectors.modes import Runs
from croupier.lab.vectors.vector import Unreadable, Vector, not_negative, number, shortened

# The engine rounds directions; a number this near, relative to it, counts as equal.
_ROUNDING = Fraction(1, 10**3)


def run_entitlement(vector: Vector, policy: str) -> Runs:
    """Find each node's part of the cluster, among the nodes that are alive."""
    forest = _loaded_forest(vector)
    if policy in ("entitlement", "min-sat-entitlement"):
        exact = engine_rule(vector, "min-sat-entitlement", forest).entitlements()
        found = {path: exact.get(path, Fraction(0)) for path in forest.by_path if path}
        yield ENGINE, [("entitlement", lambda wanted: _rounded_to(wanted, found))]
        return
    if policy not in ("min-sat-weights", "flat"):
        raise Unreadable(f"policy {shortened(policy)} has no entitlements")
    parts = forest.parts_by_weight(lambda node: policy == "flat" or node.is_alive)
    by_path: dict[str, Got] = {
        path: parts.get(node, Fraction(0)) for path, node in forest.by_path.items() if path
    }
    yield REFERENCE, [("entitlement", lambda _: by_path)]


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


def run_order(vector: Vector, policy: str) -> Runs:
    """Sort clients by need, pool by pool."""
    check_policy(vector, policy)
    if policy in ("flat", "h-drf"):
        raise Unreadable(f"mode order does not know policy {policy}")
    found = [client.path for client in engine_rule(vector, policy, _loaded_forest(vector)).order()]
    yield ENGINE, [("order", lambda _: found)]


def _loaded_forest(vector: Vector) -> Forest:
    """Return the forest with the clients' use: `usage` amounts and `initial` tasks."""
    forest = forest_of(vector)
    for path, amounts in vector.usage.items():
        forest.hold(forest.by_path[path], amounts)
    for path, count in vector.initial.items():
        forest.start(forest.by_path[path], count)
    return forest


def run_envy(vector: Vector, policy: str) -> Runs:
    """Find envy: another client's bundle has strictly more of every resource needed."""
    if policy != "property":
        raise Unreadable(f"policy {shortened(policy)} is not known in mode envy")
    bundles = vector.expected.get("bundles")
    if not isinstance(bundles, dict) or not bundles:
        raise Unreadable("mode envy needs `expected.bundles`: what each client has")
    held = {client: _bundle(amounts, vector) for client, amounts in bundles.items()}
    found = [[one, other] for one in held for other in held if _envies(vector, one, other, held)]

    def envies(wanted: Got) -> Got:
        # The order of pairs has no meaning.
        is_same = isinstance(wanted, list) and sorted(map(str, wanted)) == sorted(map(str, found))
        return wanted if is_same else found

    facts: list[Fact] = [("bundles", lambda _: held), ("envies", envies)]
    yield REFERENCE, facts


def _bundle(amounts: object, vector: Vector) -> list[Fraction]:
    if not isinstance(amounts, list) or len(amounts) != len(vector.resources):
        raise Unreadable("a bundle is not a list of numbers, one per resource")
    return [not_negative(amount, "a bundle") for amount in amounts]


def _envies(vector: Vector, one: str, other: str, held: Mapping[str, Sequence[Fraction]]) -> bool:
    if one == other:
        return False
    demand = vector.demands.get(one)
    mine, theirs = vector.weight(one), vector.weight(other)
    wanted = [r for r in range(len(vector.resources)) if demand is None or demand[r] > 0]
    return bool(wanted) and all(held[other][r] * mine[r] / theirs[r] > held[one][r] for r in wanted)
