"""Policies that take no measure of roles: one line of frameworks for the whole cluster.

Guarantees still go first. A role comes up when the first in line below it does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import log

from croupier.master.allocator.node import Leaf, Level, Node, RoleNode
from croupier.master.allocator.policies.level import NEED_BITS, Still, least, needy
from croupier.master.allocator.policies.protocol import Key
from croupier.master.allocator.prng import SplitMix64

_LAST: Level = (2, 0, 1)
# Tickets are virtual times in this many parts.
_PARTS = 1 << 40


class Flat(Still, ABC):
    """Whoever has the least turn, wherever it stands in the tree."""

    name: str

    @abstractmethod
    def turn(self, leaf: Leaf) -> int:
        """When the leaf comes up."""

    def own(self, node: Node) -> Level:
        """Its need, or its turn; a role has none of its own."""
        below = needy(node)
        if below is not None:
            return below
        return (1, self.turn(node), 1) if isinstance(node, Leaf) else _LAST

    def join(self, pool: RoleNode, _child: Node, level: Level) -> Level:
        """The earliest turn below it."""
        return least(pool.own, level)

    def key(self, node: Node, level: Level) -> Key:
        """The turn, or how much of the guarantee is met; then the first that came."""
        tier, number, over = level
        return tier, number if tier else (number << NEED_BITS) // over, node.arrival


class Fifo(Flat):
    """First come, first served: the next only gets what all before it cannot use."""

    name = "fifo"

    def turn(self, leaf: Leaf) -> int:
        """When it came."""
        return leaf.arrival


class Random(Flat):
    """A lottery: each unit goes to one of the willing at random, in proportion to weights.

    The turns of a leaf are the times of a Poisson process of its weight's rate, so which is
    the earliest is an independent draw each time. The numbers are a hash of seed and leaf:
    the same seed draws the same.
    """

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        """Draw from `seed`."""
        self._prng = SplitMix64(seed)
        self._time = 0

    def turn(self, leaf: Leaf) -> int:
        """The virtual time of its next turn."""
        return leaf.ticket

    def listed(self, leaf: Leaf, /) -> None:
        """Draw a first turn, from now on."""
        leaf.ticket = self._time + self._draw(leaf)

    def dealt(self, leaf: Leaf, /) -> None:
        """Draw the next turn."""
        self._time = max(self._time, leaf.ticket)
        leaf.ticket = self._time + self._draw(leaf)

    def _draw(self, leaf: Leaf) -> int:
        weight = leaf.weight * leaf.role_node.weight / 1_000_000
        return 1 + int(-log(self._prng.draw()) * _PARTS / weight)
