"""Limits: what a role, with all that is below it, never holds more than.

What is on offer counts as held, but where a framework has declared what it wants, no more of
it than that: an offer beyond the want is no claim.
"""

from __future__ import annotations

from collections.abc import Mapping

from croupier.master.allocator.node import Amounts, Leaf, RoleNode
from croupier.master.allocator.pending_demand import PendingDemand
from croupier.model.resources import Resources
from croupier.model.scalar import format_scalar

# A role whose limit leaves no room, and of which resource.
Bound = tuple[RoleNode, str]


def headroom(leaf: Leaf) -> Amounts:
    """By resource, the most that all limits above the leaf leave to it; never below 0."""
    room: Amounts = {}
    for pool in leaf.limited:
        for name, most in pool.settings.limit.items():
            left = max(most - counted(pool, name), 0)
            if name not in room or left < room[name]:
                room[name] = left
    return room


def counted(pool: RoleNode, name: str) -> int:
    """Thousandths of a resource that count toward the pool's limit."""
    return pool.held.get(name, 0) - pool.surplus.get(name, 0)


def exceeded(role: RoleNode) -> set[str]:
    """Return the resources of which the role holds more than its limit."""
    return {name for name, most in role.settings.limit.items() if counted(role, name) > most}


def units_within(unit: Mapping[str, int], room: Amounts, most: int) -> int:
    """How many units the limits leave room for, at most `most`."""
    for name, milli in unit.items():
        if name in room:
            most = min(most, room[name] // milli)
    return most


def binding(leaf: Leaf, unit: Mapping[str, int]) -> Bound | None:
    """The nearest role whose limit has no room for `unit`, and the resource; None if all have."""
    for pool in leaf.limited:
        for name, most in pool.settings.limit.items():
            milli = unit.get(name, 0)
            if milli and counted(pool, name) + milli > most:
                return pool, name
    return None


def exhausted(leaf: Leaf) -> Bound | None:
    """The role whose limit leaves a framework without declared demand nothing; None if none.

    A limit of 0 bars a resource and nothing else; one that is used up stops all offers, as
    what is left of the machine would be of little use without the resource.
    """
    for pool in leaf.limited:
        for name, most in pool.settings.limit.items():
            if most > 0 and counted(pool, name) >= most:
                return pool, name
    return None


def trimmed(free: Resources, room: Amounts) -> Resources:
    """What of `free` the limits allow."""
    if all(free[name] <= left for name, left in room.items()):
        return free
    scalars = {name: min(milli, room.get(name, milli)) for name, milli in free.scalars.items()}
    return Resources(scalars, free.ranges, free.sets)


def surplus_of(leaf: Leaf) -> Amounts:
    """What is on offer to the leaf beyond all that it wants."""
    if leaf.pending is None or any(want.demand.count is None for want in leaf.pending):
        return {}
    wanted: Amounts = {}
    for want in leaf.pending:
        for name, milli in want.demand.unit.scalars.items():
            wanted[name] = wanted.get(name, 0) + milli * (want.demand.count or 0)
    surplus = {
        name: milli - leaf.used.get(name, 0) - wanted.get(name, 0)
        for name, milli in leaf.held.items()
    }
    return {name: milli for name, milli in surplus.items() if milli > 0}


def is_blocked(leaf: Leaf) -> bool:
    """Whether limits leave room for nothing that the leaf wants."""
    return all(bound is not None for _, bound in blocked_demand(leaf))


def blocked_demand(leaf: Leaf) -> list[tuple[PendingDemand | None, Bound | None]]:
    """For each want that is not met, what bars it; None is nothing.

    Whole remainders are one want, None.
    """
    if leaf.pending is None:
        return [(None, exhausted(leaf))]
    return [(want, binding(leaf, want.needed)) for want in leaf.pending if want.left]


def excess(leaf: Leaf, scalars: Mapping[str, int]) -> str:
    """In words, which limit the use of `scalars` besides would break; empty if none."""
    for pool in leaf.limited:
        for name, most in pool.settings.limit.items():
            if scalars.get(name, 0) and pool.used.get(name, 0) + scalars[name] > most:
                return (
                    f"role {pool.role} uses {name}:{format_scalar(name, pool.used.get(name, 0))}"
                    f" of its limit of {format_scalar(name, most)}"
                )
    return ""
