"""Hierarchical dominant resource fairness by least satisfaction.

The level of a leaf is its dominant share. So is that of a principal in a role: its place depends on
what its frameworks hold together, and not on how many they are. By the least satisfied of them, a
principal would come first until each had a task, however many it had. The level of a role is that
of its least satisfied child, brought to the role's scale, or its own dominant share if that is
less. The scale is S, the largest component of the sum of the children's directions: siblings that
use different resources can each have nearly all that their role has, siblings that compete for one
must divide it. The entitlement of a child is then

    E(root) = 1,    E(child) = E(parent) * weight(child) * Q / S(parent)

and the leaf of least share over entitlement in the whole tree is dealt to. Ordering roles by their
own share alone would starve siblings with complementary demand. Multiplying weights down the path
would take from a role whose siblings have many members (`tests/vectors` has counterexamples).
If no leaf is blocked, this is H-DRF (Bhattacharya et al., SoCC 2013); in a flat tree it is weighted
DRF (Ghodsi et al., NSDI 2011).

Keys are exact: a level is a fraction of integers, and its key is the floor of it times
2 ** shift. Unequal fractions of denominators up to D differ by at least 1 / D ** 2. So their
keys keep their order when 2 ** shift >= D ** 2, and equal fractions have equal keys.
"""

from __future__ import annotations

from croupier.master.allocator.entitlements import Q, lift_of
from croupier.master.allocator.node import Branch, Leaf, Level, Node, PrincipalNode
from croupier.master.allocator.policies.policy import NEED_BITS, Key, Policy, least, needy
from croupier.master.allocator.share import Totals, largest

_Q_BITS = Q.bit_length()


class Drf(Policy):
    """The default policy.

    Of equal levels, the least recently dealt comes first, so that no name or age can starve
    another.
    """

    name = "drf"

    def __init__(self) -> None:
        """Start without a cluster."""
        super().__init__()
        self._shift = 0

    def scale(self, totals: Totals, depth: int, weight_bits: int, /) -> None:
        """See `Policy`."""
        super().scale(totals, depth, weight_bits)
        self._shift = 2 * (depth + 1) * (weight_bits + _Q_BITS)

    def own(self, node: Node) -> Level:
        """Return its dominant share, over its weights by resource if it has any."""
        settings = node.settings
        if settings.guarantee:
            below = needy(node)
            if below is not None:
                return below
        if settings.resource_weights:
            return (1, *largest(self._totals.shares(node.held), settings.resource_weights))
        return (1, self._totals.dominant(node.held), 1)

    def join(self, role: Branch, child: Node, level: Level) -> Level:
        """Return the lesser of the role's own level and its neediest child's, in its scale."""
        if isinstance(role, PrincipalNode):
            return role.own
        tier, number, over = level
        if tier:
            if (
                role.alive == 1
                and role.own[0]
                and isinstance(child, Leaf)
                and not role.settings.resource_weights
            ):
                # It holds what the role holds: its level in the role's scale is the role's own.
                return role.own
            up, down = lift_of(role)
            return least(role.own, (tier, number * up, over * child.weight * down))
        return least(role.own, level)

    def key(self, node: Node, level: Level) -> Key:
        """Order by level over weight, then by the least recent deal, then by arrival."""
        tier, number, over = level
        if tier:
            exact = (number << self._shift) // (over * node.weight)
        else:
            exact = (number << NEED_BITS) // over
        return tier, exact, node.dealt_at, node.arrival
