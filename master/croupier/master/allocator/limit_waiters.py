"""Frameworks that wait for headroom under a limit.

Pending demand without headroom under a limit waits at the role with that limit. A framework is
parked, and in no order, while all its pending demand waits. When headroom returns below a role, the
frameworks that wait there are checked again. Of several limits that block it, only the nearest is
watched: while that has no headroom, the others do not matter.
"""

from __future__ import annotations

from croupier.master.allocator import limits
from croupier.master.allocator.agent_pool import AgentPool
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.tree import Tree


class LimitWaiters:
    """Parks frameworks at limits, and marks agents dirty for them when headroom returns."""

    def __init__(self, tree: Tree, agents: AgentPool) -> None:
        self._tree, self._agents = tree, agents

    def park(self, leaf: Leaf, *, is_cut: bool = False) -> bool:
        """Make the pending demand that limits block wait; return whether any does.

        With `is_cut`, limits leave some headroom, but less than the minimum offer: all pending
        demand waits for more.
        """
        found = limits.blocked_demand(leaf)
        bounds = [bound for _, bound in found if bound is not None]
        if is_cut:
            leaf.wait_at(leaf.limited, [demand for demand, _ in found])
        else:
            blocked = [demand for demand, bound in found if bound is not None]
            leaf.wait_at(dict.fromkeys(role for role, _ in bounds), blocked)
        leaf.parked_by = bounds[0][0] if bounds and len(bounds) == len(found) else None
        self._tree.relist(leaf)
        return bool(leaf.waits_at)

    def update_surplus(self, leaf: Leaf) -> None:
        """Recompute the leaf's surplus; if it grew, admit frameworks that wait for headroom."""
        if self._tree.set_surplus(leaf, limits.surplus_of(leaf) if leaf.limited else {}):
            self._admit_all(leaf)

    def make_room(self, leaf: Leaf) -> None:
        """Admit frameworks after `leaf` released something. O(frameworks that wait above it)."""
        self._tree.set_surplus(leaf, limits.surplus_of(leaf) if leaf.limited else {})
        self._admit_all(leaf)

    def _admit_all(self, leaf: Leaf) -> None:
        waiting = dict.fromkeys(each for role in leaf.limited for each in role.waiting)
        for each in [each for each in waiting if self._admit(each)]:
            self._agents.mark_all_dirty(each)

    def _admit(self, leaf: Leaf) -> bool:
        for demand, bound in limits.blocked_demand(leaf):
            if bound is None and (demand in leaf.blocked or leaf.parked_by is not None):
                self._tree.unpark(leaf)
                return True
        # The watched limit may have headroom again, while another one has none.
        self.park(leaf)
        return False
