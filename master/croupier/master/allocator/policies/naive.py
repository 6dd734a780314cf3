"""Policies that judge every node by one measure of what it holds itself, over its weight.

A role's order is that of its own measure, whoever is below it: the way of the schedulers
that came before hierarchical DRF. They are here to be compared with, and for clusters that
want what they were used to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from croupier.master.allocator.node import Level, Node, RoleNode
from croupier.master.allocator.policies.level import NEED_BITS, Still, needy
from croupier.master.allocator.policies.protocol import Key
from croupier.master.allocator.share import Totals


class Naive(Still, ABC):
    """One measure, guarantees first, the least recently dealt on ties."""

    name: str

    def __init__(self) -> None:
        """Begin without a cluster."""
        self._factors: Mapping[str, int] = {}
        self._shift = 0

    @abstractmethod
    def measure(self, node: Node) -> int:
        """What is to be equal between siblings, before weights."""

    def scale(self, totals: Totals, _depth: int, weight_bits: int, /) -> None:
        """See `Policy`."""
        self._factors = totals.factors
        self._shift = 2 * weight_bits

    def own(self, node: Node) -> Level:
        """The measure of what it holds, or how much of its guarantee is met."""
        below = needy(node)
        return below if below is not None else (1, self.measure(node), 1)

    def join(self, pool: RoleNode, _child: Node, level: Level) -> Level:
        """The pool's own level, except that a needy child makes it needy too."""
        return level if level[0] < pool.own[0] else pool.own

    def key(self, node: Node, level: Level) -> Key:
        """Measure over weight; then the least recently dealt; then the first that came."""
        tier, number, over = level
        exact = (number << self._shift) // node.weight if tier else (number << NEED_BITS) // over
        return tier, exact, node.dealt_at, node.arrival


class Asset(Naive):
    """Asset fairness: the sum of the shares of all resources (DRF paper, section 5.1)."""

    name = "asset"

    def measure(self, node: Node) -> int:
        """The sum of its shares."""
        factors = self._factors
        return sum(milli * factors[name] for name, milli in node.held.items() if name in factors)


class SingleResource(Naive):
    """Fairness of one resource, cpus if none is named; the others are not looked at."""

    name = "single-resource"

    def __init__(self, resource: str = "cpus") -> None:
        """Look at `resource` only."""
        super().__init__()
        self._resource = resource

    def measure(self, node: Node) -> int:
        """Thousandths of the resource."""
        return node.held.get(self._resource, 0)


class Slots(Naive):
    """Slot fairness: tasks and units on offer count, whatever they take (section 7 there)."""

    name = "slots"

    def measure(self, node: Node) -> int:
        """How many slots it has."""
        return node.slots


class YarnDrf(Naive):
    """The comparator of the YARN fair scheduler's DominantResourceFairnessPolicy.

    Below the minimum share first, by use over minimum; then dominant share over weight; then
    the remaining shares, the largest first; then who started first. Mended: need is judged by
    every guaranteed resource and not by the cluster's dominant one alone, a minimum of 0 is
    none, and differences neither overflow nor round.
    """

    name = "yarn-drf"

    def measure(self, node: Node) -> int:
        """Its dominant share."""
        factors = self._factors
        shares = (milli * factors[name] for name, milli in node.held.items() if name in factors)
        return max(shares, default=0)

    def key(self, node: Node, level: Level) -> Key:
        """Need, or all shares over the weight in descending order; then the start."""
        tier, number, over = level
        if not tier:
            return 0, ((number << NEED_BITS) // over,), node.arrival
        factors = self._factors
        shares = sorted(
            (milli * factors[name] for name, milli in node.held.items() if name in factors),
            reverse=True,
        )
        return 1, tuple((share << self._shift) // node.weight for share in shares), node.arrival
