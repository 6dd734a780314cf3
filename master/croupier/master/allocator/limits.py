"""Limits: the most that a role may hold, with everything below it.

Offers count as held. The offers of a framework with declared demand count only up to that demand,
not their surplus.

Pending demand without headroom under a limit waits at the role with that limit. A framework is
parked, and in no order, while all its pending demand waits. When headroom returns below a role, the
frameworks that wait there are checked again. Of several limits that block it, only the nearest is
watched: while that has no headroom, the others do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping

from croupier.master.allocator.agent_pool import AgentPool
from croupier.master.allocator.node import Amounts, Leaf, RoleNode
from croupier.master.allocator.pending_demand import PendingDemand
from croupier.master.allocator.tree import Tree
from croupier.model.resources import Resources
from croupier.model.scalar import format_scalar

# A role whose limit leaves no headroom, and the resource.
Bound = tuple[RoleNode, str]


def limited_by(leaf: Leaf, owner: Leaf | None) -> tuple[RoleNode, ...]:
    """Return the roles with limits that a deal to the leaf may exceed.

    A deal from a hold of `owner` is charged already at and above the owner's role.
    """
    if owner is None:
        return leaf.limited
    return tuple(role for role in leaf.limited if role not in owner.path)


def headroom(leaf: Leaf, owner: Leaf | None = None) -> Amounts:
    """Return the leaf's headroom under all limits, by resource; never below 0.

    `owner` is that of the hold that resources are of, as below.
    """
    room: Amounts = {}
    for role in limited_by(leaf, owner):
        for name, most in role.settings.limit.items():
            left = max(most - counted(role, name), 0)
            if name not in room or left < room[name]:
                room[name] = left
    return room


def counted(role: RoleNode, name: str) -> int:
    """Return the thousandths of a resource that count toward the role's limit."""
    return role.held.get(name, 0) - role.surplus.get(name, 0)


def exceeded(role: RoleNode) -> set[str]:
    """Return the resources that the role holds more of than its limit."""
    return {name for name, most in role.settings.limit.items() if counted(role, name) > most}


def units_within(unit: Mapping[str, int], room: Amounts, most: int) -> int:
    """Return how many units fit in `room`, at most `most`."""
    for name, milli in unit.items():
        if name in room:
            most = min(most, room[name] // milli)
    return most


def binding(leaf: Leaf, unit: Mapping[str, int], owner: Leaf | None = None) -> Bound | None:
    """Return the nearest role whose limit blocks `unit`, and the resource; None if none does."""
    for role in limited_by(leaf, owner):
        for name, most in role.settings.limit.items():
            milli = unit.get(name, 0)
            if milli and counted(role, name) + milli > most:
                return role, name
    return None


def exhausted(leaf: Leaf, owner: Leaf | None = None) -> Bound | None:
    """Return the role whose limit is used up, for a framework without declared demand.

    A used-up limit stops all offers: the rest of a machine is of little use without the resource.
    A limit of 0 blocks only that resource.
    """
    for role in limited_by(leaf, owner):
        for name, most in role.settings.limit.items():
            if most > 0 and counted(role, name) >= most:
                return role, name
    return None


def trimmed(free: Resources, room: Amounts) -> Resources:
    """Return the part of `free` that the limits allow."""
    if all(free[name] <= left for name, left in room.items()):
        return free
    scalars = {name: min(milli, room.get(name, milli)) for name, milli in free.scalars.items()}
    return Resources(scalars, free.ranges, free.sets)


def surplus_of(leaf: Leaf) -> Amounts:
    """Return the surplus of the leaf's offers over its demand."""
    if leaf.pending is None or any(pending.demand.count is None for pending in leaf.pending):
        return {}
    demanded: Amounts = {}
    for pending in leaf.pending:
        for name, milli in pending.demand.unit.scalars.items():
            demanded[name] = demanded.get(name, 0) + milli * (pending.demand.count or 0)
    surplus = {
        name: milli - leaf.used.get(name, 0) - demanded.get(name, 0)
        for name, milli in leaf.held.items()
    }
    return {name: milli for name, milli in surplus.items() if milli > 0}


def is_blocked(leaf: Leaf) -> bool:
    """Return whether limits block all pending demand of the leaf."""
    return all(bound is not None for _, bound in blocked_demand(leaf))


def blocked_demand(leaf: Leaf) -> list[tuple[PendingDemand | None, Bound | None]]:
    """Return the limit that blocks each pending demand; None if none does.

    Whole remainders are one demand, None.
    """
    if leaf.pending is None:
        return [(None, exhausted(leaf))]
    return [(pending, binding(leaf, pending.needed)) for pending in leaf.pending if pending.left]


def excess(leaf: Leaf, scalars: Mapping[str, int], owner: Leaf | None = None) -> str:
    """Return in words the limit that the use of `scalars` would exceed; empty if none."""
    for role in limited_by(leaf, owner):
        for name, most in role.settings.limit.items():
            # What is offered of a hold counts as used already.
            more = scalars.get(name, 0) if owner is None else 0
            if scalars.get(name, 0) and role.used.get(name, 0) + more > most:
                return (
                    f"role {role.role} uses {name}:{format_scalar(name, role.used.get(name, 0))}"
                    f" of its limit of {format_scalar(name, most)}"
                )
    return ""


class LimitWaiters:
    """Parks frameworks at limits, and marks agents dirty for them when headroom returns."""

    def __init__(self, tree: Tree, agents: AgentPool) -> None:
        self._tree, self._agents = tree, agents

    def park(self, leaf: Leaf, *, is_cut: bool = False) -> bool:
        """Make the pending demand that limits block wait; return whether any does.

        With `is_cut`, limits leave some headroom, but less than the minimum offer: all pending
        demand waits for more.
        """
        found = blocked_demand(leaf)
        bounds = [bound for _, bound in found if bound is not None]
        if is_cut:
            leaf.wait_at(leaf.limited, [demand for demand, _ in found])
        else:
            blocked = [demand for demand, bound in found if bound is not None]
            leaf.wait_at(dict.fromkeys(role for role, _ in bounds), blocked)
        is_blocked = bool(bounds) and len(bounds) == len(found)
        # Limits do not block the use of a hold.
        leaf.parked_by = bounds[0][0] if is_blocked and not leaf.may_use_hold else None
        self._tree.relist(leaf)
        return bool(leaf.waits_at)

    def update_surplus(self, leaf: Leaf, *, has_released: bool = False) -> None:
        """Recompute the leaf's surplus, and admit frameworks that wait if there is more headroom.

        There is, if the surplus grew or the leaf has released something. O(frameworks that wait).
        """
        grew = self._tree.set_surplus(leaf, surplus_of(leaf) if leaf.limited else {})
        if grew or has_released:
            waiting = dict.fromkeys(each for role in leaf.limited for each in role.waiting)
            for each in [each for each in waiting if self._admit(each)]:
                self._agents.mark_all_dirty(each)

    def _admit(self, leaf: Leaf) -> bool:
        for demand, bound in blocked_demand(leaf):
            if bound is None and (demand in leaf.blocked or leaf.parked_by is not None):
                self._tree.unpark(leaf)
                return True
        # The watched limit may have headroom again, while another one has none.
        self.park(leaf)
        return False
