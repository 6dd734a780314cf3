"""Each framework's leaf in each of its roles, and the demand that it declared.

A role that a framework has left keeps its leaf as long as the framework holds anything there. A
change of demand marks the agents dirty that may serve it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from croupier.master.allocator import limits
from croupier.master.allocator.agent_pool import AgentPool
from croupier.master.allocator.back_off import Party
from croupier.master.allocator.grant import Units
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.pending_demand import Shape, carried, queue_of, return_units, shapes
from croupier.master.allocator.pending_demand import count_down as counted_down
from croupier.master.allocator.tree import Tree
from croupier.model.demand import Demand
from croupier.model.ids import NO_FRAMEWORK, FrameworkId, Role
from croupier.model.resources import Resources

if TYPE_CHECKING:
    from croupier.master.allocator.state import AllocatorState


class Memberships:
    """The frameworks in their roles.

    `declared`: the demand that each framework declared, with all tasks that it launched since.
    """

    def __init__(self, tree: Tree, agents: AgentPool) -> None:
        self._tree, self._agents = tree, agents
        self._leaves: dict[FrameworkId, dict[Role, Leaf]] = {}
        self.declared: dict[FrameworkId, tuple[Demand, ...]] = {}

    def add(self, framework_id: FrameworkId, roles: Sequence[Role], owner: str = "") -> None:
        """Add a framework of this owner, a principal's name, in its roles."""
        assert framework_id not in self._leaves
        add = self._tree.add
        self._leaves[framework_id] = {role: add(framework_id, role, owner) for role in roles}
        self.declared[framework_id] = ()

    def set_owner(self, framework_id: FrameworkId, owner: str) -> None:
        """Change the owner of a framework, and move its leaves to the owner's shares."""
        for leaf in self._leaves[framework_id].values():
            self._tree.move(leaf, owner)

    def party(self, framework_id: FrameworkId) -> Party:
        """Return the party that the framework backs off with."""
        return next(iter(self._leaves[framework_id].values())).party

    def remove(self, framework_id: FrameworkId) -> None:
        """Remove a framework that holds nothing."""
        for leaf in self._leaves.pop(framework_id).values():
            self._drop(leaf)
        del self.declared[framework_id]

    def set_roles(self, framework_id: FrameworkId, roles: Sequence[Role]) -> list[Leaf]:
        """Put the framework in `roles`, in this order; return the leaves of roles that it left.

        Demand in a role that it left is dropped.
        """
        before = self._leaves[framework_id]
        self.declared[framework_id] = tuple(
            each for each in self.demands(framework_id) if each.role is None or each.role in roles
        )
        left = {role: leaf for role, leaf in before.items() if role not in roles}
        leaves = {role: before.get(role) or self._add(framework_id, role) for role in roles}
        for leaf in leaves.values():
            leaf.is_member = True
        for leaf in left.values():
            leaf.is_member = False
        self._leaves[framework_id] = leaves | left
        return list(left.values())

    def leaf(self, framework_id: FrameworkId, role: Role) -> Leaf:
        """Return the framework's leaf in the role."""
        return self._leaves[framework_id][role]

    def leaves(self, framework_id: FrameworkId) -> list[Leaf]:
        """Return every leaf of the framework, those in roles that it left last."""
        return list(self._leaves[framework_id].values())

    def subscribed(self, framework_id: FrameworkId, roles: Sequence[Role] = ()) -> list[Leaf]:
        """Return the framework's leaves in the roles it subscribes to; of `roles` if given."""
        return [
            leaf
            for leaf in self._leaves[framework_id].values()
            if leaf.is_member and (not roles or leaf.role in roles)
        ]

    def leaf_to_charge(self, framework_id: FrameworkId, role: Role) -> Leaf:
        """Return the leaf in the role; add one if the framework does not subscribe to the role.

        That of `NO_FRAMEWORK` is charged for the unused part of holds for the role. It has next to
        no weight, so that it takes no share from the frameworks there.
        """
        if framework_id == NO_FRAMEWORK:
            self._leaves.setdefault(framework_id, {})
        leaf = self._leaves[framework_id].get(role)
        if leaf is None:
            leaf = self._leaves[framework_id][role] = self._add(framework_id, role)
            leaf.is_member = False
            if framework_id == NO_FRAMEWORK:
                leaf.weight = 1
        return leaf

    def demands(self, framework_id: FrameworkId) -> tuple[Demand, ...]:
        """Return the declared demand less the launched tasks."""
        pending = {
            leaf.role: iter(leaf.declared or ()) for leaf in self._leaves[framework_id].values()
        }
        first = next(iter(pending))
        return tuple(
            next(pending[each.role or first]).demand for each in self.declared[framework_id]
        )

    def demands_by_leaf(self, framework_id: FrameworkId) -> list[tuple[Leaf, list[Demand] | None]]:
        """Return each leaf with the demand declared in its role; None if none is declared at all.

        A demand that names no role counts in the framework's first role.
        """
        demands, leaves = self.declared[framework_id], self._leaves[framework_id]
        first = next(iter(leaves))
        return [
            (leaf, [each for each in demands if (each.role or first) == role] if demands else None)
            for role, leaf in leaves.items()
        ]

    def drop_if_left(self, leaf: Leaf) -> None:
        """Drop the leaf of a role that the framework left, once it holds nothing there.

        An offer or a task of only resources without shares, such as ports, shows in its slot.
        """
        if not (leaf.is_member or leaf.held or leaf.slots or leaf.holds):
            del self._leaves[leaf.framework_id][leaf.role]
            self._drop(leaf)

    def _add(self, framework_id: FrameworkId, role: Role) -> Leaf:
        owners = (leaf.owner for leaf in self._leaves[framework_id].values())
        return self._tree.add(framework_id, role, next(owners, ""))

    def _drop(self, leaf: Leaf) -> None:
        self._agents.forget_filters(leaf)
        self._agents.forget_earmarks(leaf)
        self._tree.remove(leaf)
        self._agents.release_reservations(leaf)


class DemandChanges:
    """Applies changes of demand to leaves, and marks the agents dirty that may serve it."""

    def __init__(self, state: AllocatorState) -> None:
        self._tree, self._agents = state.tree, state.agents
        self._members, self._waiters = state.members, state.waiters
        self._gatherings = state.gatherings

    def distribute(self, framework_id: FrameworkId) -> None:
        """Apply the declared demand of a framework to all its leaves."""
        for leaf, demands in self._members.demands_by_leaf(framework_id):
            leaf.declared = None if demands is None else carried(leaf.declared or (), demands)
            self.renew(leaf)

    def renew(self, leaf: Leaf) -> None:
        """Replace the leaf's pending demand by what it wants now."""
        pending = leaf.wanted()
        # All demand of a leaf that waits at a limit is new: visits decide again what waits.
        is_new = bool(leaf.waits_at) or shapes(pending) != shapes(leaf.pending)
        self._tree.unpark(leaf)
        self._tree.set_pending(leaf, pending)
        self._waiters.update_surplus(leaf)
        self._visit_for(leaf, is_new=is_new)
        if is_new:
            self._agents.release_reservations(leaf)
            self._agents.mark_withheld_dirty()

    def count_queued(
        self, leaf: Leaf, shape: Shape, number: int, *, at_begin: bool = False
    ) -> None:
        """Add submitted tasks of a shape; a negative number takes them away."""
        before = leaf.queued.get(shape)
        pending = before or queue_of(shape)
        count = (pending.demand.count or 0) + number
        assert count >= pending.outstanding, (leaf, shape)
        pending.demand = shape.demand(count)
        if before is None:
            leaf.queued[shape] = pending
            if at_begin:
                leaf.queued = {shape: pending, **leaf.queued}
            if shape.gang is not None:
                self._gatherings.queued(pending)
            self.renew(leaf)
        elif not count:
            del leaf.queued[shape]
            self._gatherings.forget(pending)
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
