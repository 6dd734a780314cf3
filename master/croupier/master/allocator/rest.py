"""What some nodes of the share tree hold and want together: those that a report leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from croupier.master.allocator.entitlements import Entitlements
from croupier.master.allocator.node import Amounts, Leaf, Node, RoleNode, add_amounts
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
    entitlements, entitlement, pending = Entitlements(root), 0.0, 0
    for node in nodes:
        if not node.is_alive:
            continue
        add_amounts(held, node.held, 1)
        numerator, denominator = entitlements.ratio(node)
        entitlement += numerator / denominator
        if isinstance(node, Leaf):
            pending += pending_units(node)
    return Rest(rough_share(held, totals), entitlement, pending)


def rough_share(held: Mapping[str, int], totals: Mapping[str, int]) -> float:
    """Return a dominant share that is rounded: for reports, not for decisions."""
    return max((milli / totals[name] for name, milli in held.items() if name in totals), default=0)


def pending_units(leaf: Leaf) -> int:
    """Return the units that a framework waits for in one role.

    A demand without a count is one unit. Demand that limits block, or that nobody can be offered,
    is not counted.
    """
    if not leaf.is_willing or leaf.pending is None:
        return 0
    return sum(1 if each.left == MANY else each.left for each in leaf.pending)
