"""Changes of demand: what leaves want, and which agents are visited for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from croupier.master.allocator import limits
from croupier.master.allocator.grant import Units
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.pending_demand import Shape, carried, queue_of, return_units, shapes
from croupier.master.allocator.pending_demand import count_down as counted_down
from croupier.master.allocator.state import AllocatorState
from croupier.model.demand import Demand
from croupier.model.ids import FrameworkId
from croupier.model.resources import Resources


class DemandChanges:
    """Applies changes of demand to leaves, and marks the agents dirty that may serve it."""

    def __init__(self, state: AllocatorState) -> None:
        self._tree, self._agents, self._profiles = state.tree, state.agents, state.profiles
        self._members, self._waiters = state.members, state.waiters

    def distribute(self, framework_id: FrameworkId) -> None:
        """Apply the declared demand of a framework to all its leaves."""
        for leaf, demands in self._members.demands_by_leaf(framework_id):
            self._set_pending(leaf, demands)

    def _set_pending(self, leaf: Leaf, demands: Sequence[Demand] | None) -> None:
        leaf.declared = None if demands is None else carried(leaf.declared or (), demands)
        self.renew(leaf)

    def renew(self, leaf: Leaf) -> None:
        """Deal to the leaf what it wants now."""
        pending = leaf.wanted()
        # All demand of a leaf that waits at a limit is new: visits decide again what waits.
        is_new = bool(leaf.waits_at) or shapes(pending) != shapes(leaf.pending)
        self._tree.unpark(leaf)
        self._tree.set_pending(leaf, pending)
        leaf.reasons.clear(self._profiles.visits)
        self._waiters.update_surplus(leaf)
        self._visit_for(leaf, is_new=is_new)
        if is_new:
            self._agents.release_reservations(leaf)
            self._agents.mark_withheld_dirty()

    def count_queued(self, leaf: Leaf, shape: Shape, number: int) -> None:
        """Add submitted tasks of a shape; a negative number takes them away."""
        before = leaf.queued.get(shape)
        pending = before or queue_of(shape)
        count = (pending.demand.count or 0) + number
        assert count >= pending.outstanding, (leaf, shape)
        pending.demand = Demand(shape.unit, count, shape.placement.constraints)
        if before is None:
            leaf.queued[shape] = pending
            self.renew(leaf)
        elif not count:
            del leaf.queued[shape]
            self.renew(leaf)
        else:
            self._waiters.update_surplus(leaf)
            self._visit_for(leaf, is_new=False)
            self._agents.recheck_scarce(leaf)

    def count_down(
        self, leaf: Leaf, units: Units, launched: Sequence[Resources], facts: Mapping[str, str]
    ) -> None:
        """Count down what the framework declared, after offers of an agent with these facts."""
        assert leaf.declared is not None
        before = shapes(leaf.pending)
        for unit, number in units:
            return_units(leaf.declared, unit, number, facts)
        for task in launched:
            counted_down(leaf.declared, task, facts)
        if leaf.pending is not None and len(leaf.pending) > 1:
            self._tree.update_kind(leaf)
        self._waiters.update_surplus(leaf)
        self._visit_for(leaf, is_new=shapes(leaf.pending) != before)
        self._agents.recheck_scarce(leaf)

    def _visit_for(self, leaf: Leaf, *, is_new: bool) -> None:
        """Visit agents for a leaf whose demand changed; with `is_new`, all open agents."""
        if leaf.parked_by is not None and not limits.is_blocked(leaf):
            self._tree.unpark(leaf)
            is_new = True
        if not self.relist(leaf) and leaf.is_listed and is_new:
            self._agents.mark_all_dirty(leaf)

    def relist(self, leaf: Leaf) -> bool:
        """List the leaf if it is willing, or unlist it; return whether it was newly listed."""
        newly = self._tree.relist(leaf)
        if newly:
            self._agents.mark_all_dirty(leaf)
        elif not leaf.is_listed:
            self._agents.release_reservations(leaf)
        return newly
