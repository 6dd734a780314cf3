"""Wrong policies, which the property tests must detect."""

from __future__ import annotations

from croupier.master.allocator.node import Level, Node
from croupier.master.allocator.policies import Drf, Key


class Unweighted(Drf):
    """Dominant shares without weights."""

    def key(self, node: Node, level: Level) -> Key:
        weight, node.weight = node.weight, 1
        try:
            return super().key(node, level)
        finally:
            node.weight = weight


class Renormalised(Drf):
    """Weights that depend on a node's place among its siblings."""

    def key(self, node: Node, level: Level) -> Key:
        parent = node.parent
        assert parent is not None
        siblings = list(parent.below())
        weight, node.weight = node.weight, 1 + siblings.index(node) ** 2
        try:
            return super().key(node, level)
        finally:
            node.weight = weight
