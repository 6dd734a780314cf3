"""Policies that only serve to be compared with: the wrong turns of hierarchical fairness.

They run on the engine, by its own protocol. Ties go to whoever came first, so that a run can
be held against a reference that fixes the order of ties.
"""

from __future__ import annotations

from fractions import Fraction

from croupier.master.allocator.node import Leaf, Level, Node, RoleNode
from croupier.master.allocator.policies import Asset, Drf, Key, SingleResource, Slots
from croupier.master.allocator.policies.level import least
from croupier.master.allocator.share import Totals


class Unrotated(Drf):
    """The engine's default, except that ties go to whoever came first."""

    name = "min-sat-entitlement"

    def __init__(self) -> None:
        """See `Drf`."""
        super().__init__(rotate=False)


class NaiveHdrf(Unrotated):
    """Each role is judged by its own dominant share, as in Mesos and YARN.

    A role one of whose members holds much looks rich, and its other members starve.
    """

    name = "naive-hdrf"

    def join(self, pool: RoleNode, _child: Node, _level: Level) -> Level:
        """The pool's own level, whoever is below it."""
        return pool.own


class MinSatWeights(Unrotated):
    """Least satisfaction with the product of weights, as if siblings all used one resource.

    It keeps what weights promise, but loses what complementary siblings gain together.
    """

    name = "min-sat-weights"

    def join(self, pool: RoleNode, child: Node, level: Level) -> Level:
        """The least of the pool's own level and its neediest child's, by the sum of weights."""
        tier, number, over = level
        if not tier:
            return least(pool.own, level)
        if pool.alive == 1 and isinstance(child, Leaf):
            # A client: what it holds and what its role holds are one.
            return pool.own
        weights = sum(node.weight for node in pool.below() if node.is_alive)
        return least(pool.own, (tier, number * weights, over * child.weight))


class Collapsed:
    """The tree made flat: a leaf's weight is the product of its path's parts of their roles.

    A role whose members do not compete with each other gets less than it was promised.
    """

    name = "flat"

    def __init__(self) -> None:
        """Begin without a cluster."""
        self._totals = Totals()

    def scale(self, totals: Totals, _depth: int, _weight_bits: int, /) -> None:
        """Remember what the cluster has."""
        self._totals = totals

    def own(self, node: Node) -> Level:
        """A leaf's share over its part of the whole; a role has none of its own."""
        if isinstance(node, RoleNode):
            return (2, 0, 1)
        share = self._totals.share(node.held) / part_of_whole(node)
        return (1, share.numerator, share.denominator)

    def join(self, pool: RoleNode, _child: Node, level: Level) -> Level:
        """The least share below it."""
        return least(pool.own, level)

    def key(self, node: Node, level: Level) -> Key:
        """The level; then the first that came."""
        tier, number, over = level
        return tier, Fraction(number, over), node.arrival

    def listed(self, leaf: Leaf, /) -> None:
        """Nothing: a leaf stands where its level puts it."""

    def dealt(self, leaf: Leaf, /) -> None:
        """Nothing: the charge itself moves the leaf."""


class UnrotatedAsset(Asset):
    """Asset fairness; ties go to whoever came first."""

    def key(self, node: Node, level: Level) -> Key:
        """Without the turn of the last deal."""
        return without_turn(super().key(node, level))


class UnrotatedSingle(SingleResource):
    """Fairness of one resource; ties go to whoever came first."""

    def key(self, node: Node, level: Level) -> Key:
        """Without the turn of the last deal."""
        return without_turn(super().key(node, level))


class UnrotatedSlots(Slots):
    """Slot fairness; ties go to whoever came first."""

    def key(self, node: Node, level: Level) -> Key:
        """Without the turn of the last deal."""
        return without_turn(super().key(node, level))


def without_turn(key: Key) -> Key:
    """A key `(tier, level, turn, arrival)` without its turn."""
    tier, level, _, arrival = key
    return tier, level, arrival


def part_of_whole(node: Node) -> Fraction:
    """What weights alone give the node of the whole cluster, whoever is alive."""
    part = Fraction(1)
    while node.parent is not None:
        part *= Fraction(node.weight, sum(each.weight for each in node.parent.below()))
        node = node.parent
    return part
