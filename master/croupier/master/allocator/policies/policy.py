"""Policies order siblings by their levels, level by level down the tree of roles.

Levels are exact fractions, below a guarantee or past it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from croupier.master.allocator.node import Branch, Leaf, Level, Node
from croupier.master.allocator.share import Totals

Key = tuple[Any, ...]
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


class Policy(ABC):
    """Orders siblings by a key made of their levels; the least is dealt to first.

    By default, nothing but a node's level decides its place.

    Every key ends in the node's arrival, so no two keys are equal. A role's key never falls when
    leaves below it are left out, so a search for the neediest eligible leaf can stop early.

    `name`: as `--policy` takes it.
    """

    name: str

    def __init__(self) -> None:
        """Start without a cluster."""
        self._totals = Totals()

    def scale(self, totals: Totals, _depth: int, _weight_bits: int, /) -> None:
        """Compute levels by these totals from now on, for a tree of this depth and weights.

        Every node is keyed again after this.
        """
        self._totals = totals

    @abstractmethod
    def own(self, node: Node) -> Level:
        """Return the node's level from its own holdings."""

    @abstractmethod
    def join(self, role: Branch, child: Node, level: Level, /) -> Level:
        """Return the role's level, with `level` that of its neediest child."""

    @abstractmethod
    def key(self, node: Node, level: Level) -> Key:
        """Return the sort key of a node of this level among its siblings."""

    def listed(self, _leaf: Leaf, /) -> None:
        """Note that the leaf enters the order."""
        return

    def dealt(self, _leaf: Leaf, /) -> None:
        """Note that the leaf is dealt a unit."""
        return
