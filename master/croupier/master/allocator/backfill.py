"""Backfill: units with a declared time, on an agent that is reserved for a larger unit.

Rule: such a unit is dealt only if it will have ended by the time at which the larger unit will
certainly fit. That time follows from the declared times of what runs on the agent now. A unit that
is dealt so gives back what it took by then, so it never makes that time later; the reservation
remembers the earliest one. Tasks without a declared time count as running for ever: if the larger
unit needs their room, no time is certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from croupier.model.ids import AgentId
from croupier.model.resources import Resources

# When something on an agent ends at the latest, and what is free then.
End = tuple[float, Resources]
# The ends of the tasks on an agent that have a declared time.
EndsOf = Callable[[AgentId], Iterable[End]]


def no_ends(_agent_id: AgentId) -> Iterable[End]:
    """Return that nothing has a declared time."""
    return ()


def certain_at(unit: Resources, free: Resources, ends: Iterable[End]) -> float:
    """Return when a unit that does not fit now fits at the latest; -inf if that is unknown."""
    room = free
    for at, amount in sorted(ends, key=lambda end: end[0]):
        room = room + amount
        if unit.units_within(room, 1):
            return at
    return -inf
