"""Directions: in which resources a node grows, and what its children can have together.

A direction is a vector scaled so that its largest component is Q, after the node's weights
by resource. That of a leaf is what its tasks use; of what it asks for while it runs none,
but never of what is merely offered to it, so that a declared shape that is not used cannot
enlarge a role's entitlement. That of a role is the sum of its children's, by weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from croupier.master.allocator.node import Amounts, Leaf, Node, RoleNode
from croupier.master.allocator.share import Totals

Q = 1 << 16


def lift_of(pool: RoleNode) -> tuple[int, int]:
    """The fraction that brings a child's level over its weight to the pool's scale."""
    weights = pool.settings.resource_weights
    if not pool.direction_sum:
        return 1, 1
    if not weights:
        return max(pool.direction_sum.values()), Q
    best, over = 0, 1
    for name, pull in pool.direction_sum.items():
        weight = weights.get(name, 1000)
        if pull * 1000 * over > best * weight:
            best, over = pull * 1000, weight
    return best, Q * over


def direction_of(node: Node, totals: Totals) -> Amounts:
    """The direction of a node that is alive."""
    if isinstance(node, Leaf):
        return _of_leaf(node, totals)
    assert isinstance(node, RoleNode)
    up, over = lift_of(node)
    # Scaled so that the largest part, after the weights by resource, is Q; rounded up.
    return {name: -(-pull * over // up) for name, pull in node.direction_sum.items()}


def _of_leaf(leaf: Leaf, totals: Totals) -> Amounts:
    if leaf.used:
        return _scaled(leaf.used, totals, leaf.settings.resource_weights)
    if leaf.pending is None or not leaf.pending:
        return _everywhere(totals)
    return _widest(
        _scaled(want.demand.unit.scalars, totals, leaf.settings.resource_weights)
        for want in leaf.pending
    )


def _scaled(amounts: Mapping[str, int], totals: Totals, weights: Mapping[str, int]) -> Amounts:
    shares = {n: m * totals.factors[n] for n, m in amounts.items() if n in totals.factors}
    dominant, over = max(shares.values(), default=0), 1
    if weights:
        dominant = 0
        for name, share in shares.items():
            weight = weights.get(name, 1000)
            if share * 1000 * over > dominant * weight:
                dominant, over = share * 1000, weight
    if not dominant:
        return _everywhere(totals)
    return {name: -(-share * Q * over // dominant) for name, share in shares.items()}


def _everywhere(totals: Totals) -> Amounts:
    # Where there is nothing yet, siblings compete for that.
    return dict.fromkeys(totals.amounts or ("",), Q)


def _widest(directions: Iterable[Amounts]) -> Amounts:
    widest: Amounts = {}
    for direction in directions:
        for name, part in direction.items():
            widest[name] = max(widest.get(name, 0), part)
    return widest
