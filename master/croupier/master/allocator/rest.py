"""What some nodes of the share tree hold and want together: those that a report leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from croupier.master.allocator.entitlements import lift_of
from croupier.master.allocator.node import Amounts, Leaf, Node, RoleNode
from croupier.master.allocator.pending_demand import MANY


@dataclass(frozen=True, slots=True)
class Rest:
    """Several nodes together, none within another.

    Attributes:
        share: the dominant share of everything that they hold.
        entitlement: the sum of their entitlements.
        pending: units of demand that wait; 0 for roles.
    """

    share: float = 0.0
    entitlement: float = 0.0
    pending: int = 0


def rest_of(nodes: Iterable[Node], root: RoleNode, totals: Mapping[str, int]) -> Rest:
    """Sum up `nodes`. O(nodes x depth); a node that is not alive costs little."""
    held: Amounts = {}
    parts = _Parts(root)
    entitlement, pending = 0.0, 0
    for node in nodes:
        if node.weighted_direction is not None:
            entitlement += parts.of(node)
        for name, milli in node.held.items():
            held[name] = held.get(name, 0) + milli
        if isinstance(node, Leaf):
            pending += pending_units(node)
    return Rest(rough_share(held, totals), entitlement, pending)


class _Parts:
    """Entitlements of nodes, rounded; `Entitlements` has the exact ones, at four times the cost."""

    def __init__(self, root: RoleNode) -> None:
        # Of each branch: what a child is entitled to for each thousandth of its weight.
        self._per_weight: dict[Node, float] = {}
        self._root = root

    def of(self, node: Node) -> float:
        if node is self._root:
            return 1.0
        parent = node.parent
        if node.weighted_direction is None or parent is None:
            return 0.0
        per_weight = self._per_weight.get(parent)
        if per_weight is None:
            up, down = lift_of(parent)
            per_weight = self._per_weight[parent] = self.of(parent) * down / up
        return per_weight * node.weight


def rough_share(held: Mapping[str, int], totals: Mapping[str, int]) -> float:
    """Return a dominant share that is rounded: for reports, not for decisions."""
    return max((milli / totals[name] for name, milli in held.items() if name in totals), default=0)


def pending_units(leaf: Leaf) -> int:
    """Return the units that a framework waits for in one role.

    A demand without a count is one unit. Demand that limits block, or of a framework that can
    receive no offers, is not counted.
    """
    if not leaf.is_willing or leaf.pending is None:
        return 0
    return sum(1 if each.left == MANY else each.left for each in leaf.pending)
