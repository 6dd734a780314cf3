"""Levels: exact fractions, below a guarantee or past it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from croupier.master.allocator.node import Leaf, Level, Node
from croupier.master.allocator.share import Totals

# Guarantees are below 2**60 thousandths: keys of needs keep order after this shift.
NEED_BITS: Final = 128


def needy(node: Node, held: Mapping[str, int] | None = None) -> Level | None:
    """Return the node's level while it is below its guarantee, else None; of `held` if given.

    A guarantee is met when any guaranteed resource is: the next unit would go beyond it.
    Guarantees that are too large together scale down by themselves, as the least fulfilled goes
    first. A node with holdings, but none of a guaranteed resource, does not use its guarantee:
    else a guarantee of gpus would give all cpus to a role whose tasks take only cpus.
    """
    guarantee = node.settings.guarantee
    if not guarantee:
        return None
    if held is None:
        held = node.held
    most, total = 0, 1
    for name, promised in guarantee.items():
        amount = held.get(name, 0)
        if promised > 0 and amount * total > most * promised:
            most, total = amount, promised
    if most >= total or (not most and held):
        return None
    return (0, most, total) if any(guarantee.values()) else None


def least(one: Level, other: Level) -> Level:
    """Return the lesser of two levels; the first if they are equal."""
    if other[0] != one[0]:
        return other if other[0] < one[0] else one
    return other if other[1] * one[2] < one[1] * other[2] else one


class Still:
    """The parts of `Policy` that do nothing when levels depend only on what nodes hold."""

    def scale(self, totals: Totals, depth: int, weight_bits: int, /) -> None:
        """Ignore the scale: levels are whole numbers."""

    def listed(self, leaf: Leaf, /) -> None:
        """Do nothing: the level decides the place."""

    def dealt(self, leaf: Leaf, /) -> None:
        """Do nothing: the charge itself moves the leaf."""
