"""Shares, entitlements and needs of nodes, now or after projected changes.

Shares and entitlements are pairs of integers, compared by cross-multiplication: exact, and many
times faster than reduced fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import lcm

from croupier.master.allocator.entitlements import Entitlements, Q, Ratio, direction_of
from croupier.master.allocator.node import Amounts, Branch, Leaf, Node, RoleNode, add_amounts
from croupier.master.allocator.tree import Tree


class ShareProjection:
    """The share tree, as it would be if frameworks held more or less."""

    def __init__(self, tree: Tree) -> None:
        """Start with the tree as it is. It must not change while this is used."""
        self._totals = tree.totals
        self._entitlements = Entitlements(tree.root)
        self._held: dict[Node, Amounts] = {}
        self._left: dict[Branch, Ratio] = {}

    def change(self, leaf: Leaf, scalars: Mapping[str, int], sign: int = 1) -> None:
        """Project that the leaf holds more, or less with `sign` -1. O(depth x resources)."""
        for node in leaf.path:
            held = self._held.get(node)
            if held is None:
                held = self._held[node] = dict(node.held)
            add_amounts(held, scalars, sign)

    def share(self, node: Node, change: Mapping[str, int] | None = None, sign: int = 1) -> Ratio:
        """Return its dominant share over its weights by resource, after one more `change`."""
        held: Mapping[str, int] = self._held.get(node, node.held)
        if change:
            held = changed = dict(held)
            add_amounts(changed, change, sign)
        weights = node.settings.resource_weights
        if not weights:
            return self._totals.dominant(held), self._totals.whole
        over = lcm(1000, *weights.values())
        factors = self._totals.factors
        shares = (
            milli * factors[name] * 1000 * (over // weights.get(name, 1000))
            for name, milli in held.items()
            if name in factors
        )
        return max(shares, default=0), self._totals.whole * over

    def satisfaction(
        self, node: Node, change: Mapping[str, int] | None = None, sign: int = 1
    ) -> Ratio:
        """Return its share over its entitlement; 1 is exactly its entitlement."""
        share, whole = self.share(node, change, sign)
        entitled, over = self._entitlements.ratio(node)
        return share * over, whole * entitled

    def is_needy(self, node: Node, change: Mapping[str, int] | None = None, sign: int = 1) -> bool:
        """Return whether it would be below its guarantee; see `policies.policy`.

        A node that has some of its guarantee now may not lose the last of it.
        """
        promised = {name: milli for name, milli in node.settings.guarantee.items() if milli}
        if not promised or (node.held and not any(name in node.held for name in promised)):
            return False
        held = dict(self._held.get(node, node.held))
        add_amounts(held, change or {}, sign)
        return all(held.get(name, 0) < milli for name, milli in promised.items())

    def left_by_guarantees(self, role: Branch) -> Ratio:
        """Return the fraction of their entitlements that the children keep if guarantees are met.

        It is 1 unless a guarantee exceeds its role's entitlement without it.
        """
        known = self._left.get(role)
        if known is None:
            known = self._left[role] = self._left_by_guarantees(role)
        return known

    def _left_by_guarantees(self, role: Branch) -> Ratio:
        promised = entitled = Fraction(0)
        for node in role.children.values():
            if node.weighted_direction is None or not node.settings.guarantee:
                continue
            floor, usual = self._promised(node), self._entitlements.of(node)
            if floor > usual:
                promised, entitled = promised + floor, entitled + usual
        whole = self._entitlements.of(role)
        if promised >= whole or entitled >= whole:
            return 0, 1
        left = (whole - promised) / (whole - entitled)
        return left.numerator, left.denominator

    def _promised(self, node: RoleNode) -> Fraction:
        """Return the dominant share of the node once its guarantee is met.

        It exceeds the share of the guarantee if its tasks use more of another resource.
        """
        guarantee = node.settings.guarantee
        direction = direction_of(node, self._totals)
        needed = [
            self._totals.share({name: milli}) * Q / direction[name]
            for name, milli in guarantee.items()
            if milli and direction.get(name)
        ]
        return max(self._totals.share(guarantee), min(needed, default=Fraction(0)))


def is_below(one: Ratio, other: Ratio) -> bool:
    """Return whether one fraction is less than another; neither is below 0."""
    return one[0] * other[1] < other[0] * one[1]


def may_preempt(node: Node, by_default: bool) -> bool:
    """Return whether operators allow the node to preempt and be preempted."""
    for each in node.path:
        if isinstance(each, RoleNode) and each.settings.preemption is not None:
            return each.settings.preemption
    return by_default
