"""Levels: exact fractions, below a guarantee or past it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from croupier.master.allocator.node import Leaf, Level, Node
from croupier.master.allocator.share import Totals

# Guarantees are below 2**60 thousandths: keys of needs keep order after this shift.
NEED_BITS: Final = 128


def needy(node: Node, held: Mapping[str, int] | None = None) -> Level | None:
    """The node's level while it is below its guarantee; None once any part of it is met.

    With `held` it is that level if the node held so much.

    It is met when any guaranteed resource is: the next unit would go beyond it. Guarantees
    that are too large together scale down by themselves, as the least fulfilled goes first.
    Who holds something, but nothing of what it was guaranteed, has no use for that: else a
    guarantee of gpus would give all cpus to a role whose tasks want cpus alone.
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
    """The one of two levels that has come less far; the first if they are equal."""
    if other[0] != one[0]:
        return other if other[0] < one[0] else one
    return other if other[1] * one[2] < one[1] * other[2] else one


class Still:
    """What a policy does not do whose levels follow from what nodes hold alone."""

    def scale(self, totals: Totals, depth: int, weight_bits: int, /) -> None:
        """Nothing: its levels are whole numbers."""

    def listed(self, leaf: Leaf, /) -> None:
        """Nothing: a leaf stands where its level puts it."""

    def dealt(self, leaf: Leaf, /) -> None:
        """Nothing: the charge itself moves the leaf."""
