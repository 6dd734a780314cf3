"""Policies that order every node by one measure of its own holdings, over its weight.

A role's place does not depend on the nodes below it, as in schedulers before hierarchical DRF.
These policies are for comparison, and for clusters that migrate from such schedulers.
"""

from __future__ import annotations

from abc import abstractmethod

from croupier.master.allocator.node import Branch, Level, Node
from croupier.master.allocator.policies.policy import NEED_BITS, Key, Policy, needy
from croupier.master.allocator.share import Totals


class Naive(Policy):
    """One measure; guarantees first; ties by the least recent deal."""

    def __init__(self) -> None:
        super().__init__()
        self._shift = 0

    @abstractmethod
    def measure(self, node: Node) -> int:
        """Return the measure that the policy equalises between siblings, before weights."""

    def scale(self, totals: Totals, depth: int, weight_bits: int, /) -> None:
        """See `Policy`."""
        super().scale(totals, depth, weight_bits)
        self._shift = 2 * weight_bits

    def own(self, node: Node) -> Level:
        """Return the measure of what it holds, or how much of its guarantee is met."""
        below = needy(node)
        return below if below is not None else (1, self.measure(node), 1)

    def join(self, role: Branch, _child: Node, level: Level) -> Level:
        """Return the role's own level, except that a needy child makes it needy too."""
        return level if level[0] < role.own[0] else role.own

    def key(self, node: Node, level: Level) -> Key:
        """Order by measure over weight, then by the least recent deal, then by arrival."""
        tier, number, over = level
        exact = (number << self._shift) // node.weight if tier else (number << NEED_BITS) // over
        return tier, exact, node.dealt_at, node.arrival


class Asset(Naive):
    """Asset fairness: the sum of the shares of all resources (DRF paper, section 5.1)."""

    name = "asset"

    def measure(self, node: Node) -> int:
        """Return the sum of its shares."""
        return sum(self._totals.shares(node.held).values())


class SingleResource(Naive):
    """Fairness of one resource, cpus by default; the others are ignored."""

    name = "single-resource"

    def __init__(self, resource: str = "cpus") -> None:
        super().__init__()
        self._resource = resource

    def measure(self, node: Node) -> int:
        """Return thousandths of the resource."""
        return node.held.get(self._resource, 0)


class Slots(Naive):
    """Slot fairness: tasks and offered units count, whatever they take (DRF paper, section 7)."""

    name = "slots"

    def measure(self, node: Node) -> int:
        """Return how many slots it has."""
        return node.slots


class YarnDrf(Naive):
    """The comparator of the YARN fair scheduler's DominantResourceFairnessPolicy.

    Below the minimum share first, by use over minimum; then dominant share over weight; then
    the remaining shares, the largest first; then the start time. Unlike in YARN, every guaranteed
    resource counts for need, not only the cluster's dominant one. A minimum of 0 is none.
    Differences neither overflow nor round.
    """

    name = "yarn-drf"

    def measure(self, node: Node) -> int:
        """Return its dominant share."""
        return self._totals.dominant(node.held)

    def key(self, node: Node, level: Level) -> Key:
        """Order by need, or by all shares over weight, the largest first; then by arrival."""
        tier, number, over = level
        if not tier:
            return 0, ((number << NEED_BITS) // over,), node.arrival
        shares = sorted(self._totals.shares(node.held).values(), reverse=True)
        return 1, tuple((share << self._shift) // node.weight for share in shares), node.arrival
