"""Policies for comparison: flawed forms of hierarchical fairness, and policies without rotation.

They run on the engine. Ties go to the node that arrived first, as in the references that runs are
compared with.
"""

from __future__ import annotations

from fractions import Fraction

from croupier.master.allocator.node import Branch, Leaf, Level, Node
from croupier.master.allocator.policies import Asset, Drf, Key, Policy, SingleResource, Slots
from croupier.master.allocator.policies.naive import Naive
from croupier.master.allocator.policies.policy import least


class Unrotated(Drf):
    """The engine's default; ties go to the leaf that came first."""

    name = "min-sat-entitlement"

    def key(self, node: Node, level: Level) -> Key:
        """Return the key without the turn."""
        tier, exact, _, arrival = super().key(node, level)
        return tier, exact, arrival


class NaiveHdrf(Unrotated):
    """Each role is judged by its own dominant share, as in Mesos and YARN.

    A role with one rich member looks rich, and its other members starve.
    """

    name = "naive-hdrf"

    def join(self, role: Branch, _child: Node, _level: Level) -> Level:
        """Return the role's own level."""
        return role.own


class MinSatWeights(Unrotated):
    """Least satisfaction with the product of weights, as if siblings all used one resource.

    It keeps entitlements by weights, but not the gain of complementary siblings.
    """

    name = "min-sat-weights"

    def join(self, role: Branch, child: Node, level: Level) -> Level:
        """Return the least of the role's own level and its neediest child's, by sums of weights."""
        tier, number, over = level
        if not tier:
            return least(role.own, level)
        if role.alive == 1 and isinstance(child, Leaf):
            # The only client of the role holds the same as the role.
            return role.own
        weights = sum(node.weight for node in role.below() if node.is_alive)
        return least(role.own, (tier, number * weights, over * child.weight))


class Collapsed(Policy):
    """The flattened tree: a leaf's weight is the product of the relative weights on its path.

    A role whose members do not compete with each other gets less than its entitlement.
    """

    name = "flat"

    def own(self, node: Node) -> Level:
        """Return a leaf's share over its part of the whole; a role has none of its own."""
        if isinstance(node, Branch):
            return (2, 0, 1)
        share = self._totals.share(node.held) / part_of_whole(node)
        return (1, share.numerator, share.denominator)

    def join(self, role: Branch, _child: Node, level: Level) -> Level:
        """Return the least share below the role."""
        return least(role.own, level)

    def key(self, node: Node, level: Level) -> Key:
        """Return the level, then the arrival."""
        tier, number, over = level
        return tier, Fraction(number, over), node.arrival


class _WithoutTurn(Naive):
    """A policy that compares shares; ties go to the node that came first."""

    def key(self, node: Node, level: Level) -> Key:
        tier, value, _, arrival = super().key(node, level)
        return tier, value, arrival


class UnrotatedAsset(_WithoutTurn, Asset):
    """Asset fairness."""


class UnrotatedSingle(_WithoutTurn, SingleResource):
    """Fairness of one resource."""


class UnrotatedSlots(_WithoutTurn, Slots):
    """Slot fairness."""


def part_of_whole(node: Node) -> Fraction:
    """Return the node's part of the whole cluster by weights alone."""
    part = Fraction(1)
    while node.parent is not None:
        part *= Fraction(node.weight, sum(each.weight for each in node.parent.below()))
        node = node.parent
    return part
