"""The protocol of policies: they order siblings, level by level down the tree of roles."""

from __future__ import annotations

from typing import Any, Protocol

from croupier.master.allocator.node import Branch, Leaf, Level, Node
from croupier.master.allocator.share import Totals

Key = tuple[Any, ...]


class Policy(Protocol):
    """Orders siblings by a key made of their levels; the least is dealt to first.

    Every key ends in the node's arrival, so no two keys are equal. A role's key never falls when
    leaves below it are left out, so a search for the neediest eligible leaf can stop early.

    Attributes:
        name: as `--policy` takes it.
    """

    name: str

    def scale(self, totals: Totals, depth: int, weight_bits: int, /) -> None:
        """Compute levels by these totals from now on, for a tree of this depth and weights.

        Every node is keyed again after this.
        """

    def own(self, node: Node) -> Level:
        """Return the node's level from its own holdings."""

    def join(self, role: Branch, child: Node, level: Level, /) -> Level:
        """Return the role's level, with `level` that of its neediest child."""

    def key(self, node: Node, level: Level) -> Key:
        """Return the sort key of a node of this level among its siblings."""

    def listed(self, leaf: Leaf, /) -> None:
        """Note that the leaf enters the order."""

    def dealt(self, leaf: Leaf, /) -> None:
        """Note that the leaf is dealt a unit."""
