"""Policies with one queue of frameworks for the whole cluster, whatever their roles hold.

Guarantees still come first. The turn of a role is the earliest turn below it. So is that of a
principal in a role, except under `random`: there the principal has a turn of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from math import log

from croupier.master.allocator.node import Branch, Leaf, Level, Node, PrincipalNode
from croupier.master.allocator.policies.policy import NEED_BITS, Key, Policy, least, needy
from croupier.master.allocator.prng import SplitMix64

_LAST: Level = (2, 0, 1)
# Tickets are virtual times in this many parts.
_PARTS = 1 << 40


class Flat(Policy):
    """The framework with the least turn comes first, wherever it is in the tree."""

    @abstractmethod
    def turn(self, leaf: Leaf) -> int:
        """Return the turn of the leaf."""

    def own(self, node: Node) -> Level:
        """Return its need, or its turn; a role has no turn of its own."""
        below = needy(node)
        if below is not None:
            return below
        return (1, self.turn(node), 1) if isinstance(node, Leaf) else _LAST

    def join(self, role: Branch, _child: Node, level: Level) -> Level:
        """Return the earliest turn below it."""
        return least(role.own, level)

    def key(self, node: Node, level: Level) -> Key:
        """Order by turn, or by how much of the guarantee is met; then by arrival."""
        tier, number, over = level
        return tier, number if tier else (number << NEED_BITS) // over, node.arrival


class Fifo(Flat):
    """First come, first served: a framework gets only what all before it cannot use."""

    name = "fifo"

    def turn(self, leaf: Leaf) -> int:
        """Return its arrival."""
        return leaf.arrival


class Random(Flat):
    """A lottery: each unit goes to a willing framework at random, in proportion to weights.

    The turns of a framework are the times of a Poisson process with its weight as the rate, so the
    earliest is an independent draw each time. The same seed draws the same. The frameworks of one
    principal in a role are drawn together, as one of weight 1; another lottery chooses among them.
    """

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._prng = SplitMix64(seed)
        self._time = 0

    def turn(self, leaf: Leaf) -> int:
        """Return the virtual time of its next turn."""
        return leaf.ticket

    def own(self, node: Node) -> Level:
        """Return its need, or its turn; a principal has one, a role has none."""
        if isinstance(node, PrincipalNode):
            return 1, node.ticket, 1
        return super().own(node)

    def join(self, role: Branch, child: Node, level: Level) -> Level:
        """Return the earliest turn below a role, or the principal's own turn."""
        if isinstance(role, PrincipalNode):
            return role.own
        return super().join(role, child, level)

    def listed(self, leaf: Leaf, /) -> None:
        """Draw a first turn, from now on."""
        principal = leaf.parent
        if not isinstance(principal, PrincipalNode):
            leaf.ticket = self._time + self._draw(leaf)
            return
        leaf.ticket = principal.time + self._draw(leaf)
        if not principal.willing:
            principal.ticket = self._time + self._draw(leaf)

    def dealt(self, leaf: Leaf, /) -> None:
        """Draw the next turn."""
        principal = leaf.parent
        if not isinstance(principal, PrincipalNode):
            self._time = max(self._time, leaf.ticket)
            leaf.ticket = self._time + self._draw(leaf)
            return
        principal.time = max(principal.time, leaf.ticket)
        leaf.ticket = principal.time + self._draw(leaf)
        self._time = max(self._time, principal.ticket)
        principal.ticket = self._time + self._draw(leaf)

    def _draw(self, leaf: Leaf) -> int:
        weight = leaf.weight * leaf.role_node.weight / 1_000_000
        return 1 + int(-log(self._prng.draw()) * _PARTS / weight)
