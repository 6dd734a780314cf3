"""How far nodes are from their entitlements, also after changes that are only imagined.

Shares and entitlements are kept as pairs of integers and compared crosswise: exact, and many
times faster than reduced fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import lcm

from croupier.master.allocator.directions import Q, direction_of, lift_of
from croupier.master.allocator.node import Amounts, Leaf, Node, RoleNode, add_amounts
from croupier.master.allocator.tree import Tree

Ratio = tuple[int, int]


class Standings:
    """The tree as it stands, and as it would stand."""

    def __init__(self, tree: Tree) -> None:
        """Begin with the tree as it is. It must not change while this is used."""
        self._tree = tree
        self._totals = tree.totals
        self._entitlements: dict[Node, Ratio] = {tree.root: (1, 1)}
        self._held: dict[Node, Amounts] = {}
        self._left: dict[RoleNode, Ratio] = {}

    def imagine(self, leaf: Leaf, scalars: Mapping[str, int], sign: int = 1) -> None:
        """Let the leaf hold more, or less with `sign` -1. O(depth x resources)."""
        for node in leaf.path:
            held = self._held.get(node)
            if held is None:
                held = self._held[node] = dict(node.held)
            add_amounts(held, scalars, sign)

    def held(self, node: Node) -> Mapping[str, int]:
        """What the node would hold."""
        return self._held.get(node, node.held)

    def share(self, node: Node, change: Mapping[str, int] | None = None, sign: int = 1) -> Ratio:
        """Its dominant share over its weights by resource, after `change` besides."""
        held = self.held(node)
        if change:
            held = dict(held)
            add_amounts(held, change, sign)
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

    def entitlement(self, node: Node) -> Ratio:
        """What part of the cluster it is entitled to; see `policies.drf`."""
        known = self._entitlements.get(node)
        if known is None:
            assert node.parent is not None
            above, below = self.entitlement(node.parent)
            up, down = lift_of(node.parent)
            known = self._entitlements[node] = (above * node.weight * down, below * up)
        return known

    def satisfaction(
        self, node: Node, change: Mapping[str, int] | None = None, sign: int = 1
    ) -> Ratio:
        """Share over entitlement: 1 is just what it is entitled to."""
        share, whole = self.share(node, change, sign)
        entitled, over = self.entitlement(node)
        return share * over, whole * entitled

    def left_by_guarantees(self, pool: RoleNode) -> Ratio:
        """What part of their entitlements the children of `pool` keep if guarantees are met.

        1 unless a guarantee is more than its role would be entitled to without it.
        """
        known = self._left.get(pool)
        if known is None:
            known = self._left[pool] = self._left_by_guarantees(pool)
        return known

    def _left_by_guarantees(self, pool: RoleNode) -> Ratio:
        whole = Fraction(*self.entitlement(pool))
        promised = entitled = Fraction(0)
        for node in pool.children.values():
            if node.weighted_direction is None or not node.settings.guarantee:
                continue
            floor = self._promised(node)
            usual = Fraction(*self.entitlement(node))
            if floor > usual:
                promised, entitled = promised + floor, entitled + usual
        if promised >= whole or entitled >= whole:
            return 0, 1
        left = (whole - promised) / (whole - entitled)
        return left.numerator, left.denominator

    def _promised(self, node: RoleNode) -> Fraction:
        """The dominant share that the node has once it has what it is guaranteed.

        That is more than the guarantee itself if its tasks use more of another resource.
        """
        guarantee = node.settings.guarantee
        direction = direction_of(node, self._totals)
        needed = [
            self._totals.share({name: milli}) * Q / direction[name]
            for name, milli in guarantee.items()
            if milli and direction.get(name)
        ]
        return max(self._totals.share(guarantee), min(needed, default=Fraction(0)))

    def is_needy(self, node: Node, change: Mapping[str, int] | None = None, sign: int = 1) -> bool:
        """Whether it would be below its guarantee; see `policies.level`.

        Whoever has of it now may not lose the last of it.
        """
        promised = {name: milli for name, milli in node.settings.guarantee.items() if milli}
        if not promised or (node.held and not any(name in node.held for name in promised)):
            return False
        held = dict(self.held(node))
        add_amounts(held, change or {}, sign)
        return all(held.get(name, 0) < milli for name, milli in promised.items())


def below(one: Ratio, other: Ratio) -> bool:
    """Whether one fraction is less than another; neither is below 0."""
    return one[0] * other[1] < other[0] * one[1]


def almost_common(one: Leaf, other: Leaf) -> tuple[list[Node], Node]:
    """The path of `one` below the last role that both share, and where `other`'s begins."""
    theirs = {node.parent: node for node in other.path}
    path: list[Node] = []
    for node in one.path:
        path.append(node)
        if node.parent in theirs:
            return path, theirs[node.parent]
    raise AssertionError("every path ends at the root")


def may_preempt(node: Node, by_default: bool) -> bool:
    """Whether what operators set allows the node to preempt and be preempted."""
    for each in node.path:
        if isinstance(each, RoleNode) and each.settings.preemption is not None:
            return each.settings.preemption
    return by_default
