"""What a policy decides: whose turn it is, level by level down the tree of roles."""

from __future__ import annotations

from typing import Any, Protocol

from croupier.master.allocator.node import Leaf, Level, Node, RoleNode
from croupier.master.allocator.share import Totals

Key = tuple[Any, ...]


class Policy(Protocol):
    """Orders siblings by a key made of their levels; the least is dealt to first.

    Every key ends in the node's arrival, so that no two are equal, and a pool's key never
    falls when leaves below it are left out: that is what makes a search for the neediest
    eligible leaf stop early (research: Ghodsi et al., SoCC 2013, and this tree's docstring).

    Attributes:
        name: as `--policy` takes it.
    """

    name: str

    def scale(self, totals: Totals, depth: int, weight_bits: int, /) -> None:
        """Make levels by these totals from now on, for a tree so deep, of such weights.

        Every node is keyed anew after this.
        """

    def own(self, node: Node) -> Level:
        """How far the node has come by what it holds itself."""

    def join(self, pool: RoleNode, child: Node, level: Level, /) -> Level:
        """How far the pool has come, with `level` that of its neediest child."""

    def key(self, node: Node, level: Level) -> Key:
        """Where a node of this level stands among its siblings."""

    def listed(self, leaf: Leaf, /) -> None:
        """The leaf takes its place in the order, after it wanted nothing."""

    def dealt(self, leaf: Leaf, /) -> None:
        """The leaf was dealt a unit."""
