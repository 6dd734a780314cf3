"""Since when what a framework launches was wanted.

A framework that declares demand wants so many units from when it declares them. One that
wants any number has always more to do, and waits for nothing in particular; so has one that
asks for more, again and again, before it has had what it asked for. One that declares nothing
is taken to want what it launches since it last let an offer go, or was silent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from croupier.model.attributes import Constraint
from croupier.model.demand import Demand, counted_for
from croupier.model.ids import Role
from croupier.model.resources import Resources

# Who has asked for more so often, and never had enough, never will.
INSATIABLE = 10

# What tells demands of one framework apart.
DemandKey = tuple[Role, Resources, frozenset[Constraint]]


def demand_key(role: Role, demand: Demand) -> DemandKey:
    """What tells the demand apart from the framework's others."""
    return role, demand.unit, frozenset(demand.constraints)


@dataclass(slots=True)
class Wish:
    """One shape that is wanted in one role.

    Attributes:
        since: when it was first declared.
        waiting: since when, and how many units, oldest first.
        endless_since: since when any number is wanted; None if it is not.
        was_met: whether at any time none was wanted.
        renewals: how often more were asked for than before.
    """

    role: Role
    demand: Demand
    since: float
    waiting: deque[tuple[float, int]] = field(default_factory=deque)
    endless_since: float | None = None
    was_met: bool = False
    renewals: int = 0

    @property
    def is_insatiable(self) -> bool:
        """Whether there was always more to do, although a number was asked for."""
        return not self.was_met and self.renewals >= INSATIABLE

    @property
    def units(self) -> int:
        """How many are wanted, endless ones aside."""
        return sum(number for _, number in self.waiting)

    @property
    def left(self) -> Demand:
        """What is wanted still."""
        return (
            self.demand
            if self.endless_since is not None
            else replace(self.demand, count=self.units)
        )

    def declare(self, demand: Demand, at: float) -> None:
        """So many are wanted now; the latest wishes are the first that are given up."""
        self.demand = demand
        if demand.count is None:
            self.waiting.clear()
            self.endless_since = at if self.endless_since is None else self.endless_since
            return
        self.endless_since = None
        more = demand.count - self.units
        if more > 0:
            self.renewals += bool(self.waiting)
            self.waiting.append((at, more))
        while more < 0:
            since, number = self.waiting.pop()
            if number + more > 0:
                self.waiting.append((since, number + more))
            more += number
        self.was_met |= not self.waiting

    def take(self) -> float | None:
        """One is launched; since when it was wanted, None if nobody can say."""
        if not self.waiting:
            return None
        since, number = self.waiting[0]
        if number > 1:
            self.waiting[0] = (since, number - 1)
        else:
            self.waiting.popleft()
            self.was_met |= not self.waiting
        return since


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a launched task was a unit of.

    Attributes:
        since: when it was first wanted; None if it has no such time.
        demand: None if none was declared.
    """

    since: float | None
    demand: Demand | None = None


class Wishes:
    """All that one framework wants."""

    def __init__(self, at: float) -> None:
        """It declares nothing yet."""
        self.declares = False
        self._quiet_since = at
        self._wishes: dict[DemandKey, Wish] = {}

    def __iter__(self) -> Iterator[Wish]:
        return iter(self._wishes.values())

    def quiet(self, at: float) -> None:
        """It was seen to want nothing at `at`."""
        self._quiet_since = at

    def declare(self, demands: Sequence[Demand], first: Role, at: float) -> None:
        """It wants this and nothing else; `first` is the role of demands that name none."""
        if not demands and self.declares:
            self._quiet_since = at
        self.declares = bool(demands)
        before, self._wishes = self._wishes, {}
        for demand in demands:
            role = demand.role or first
            key = demand_key(role, demand)
            wish = before.get(key) or Wish(role, demand, at)
            wish.declare(demand, at)
            self._wishes[key] = wish

    def launch(self, role: Role, task: Resources, facts: Mapping[str, str]) -> Wanted:
        """A task of this size is launched in the role, on an agent with these attributes."""
        if not self.declares:
            return Wanted(self._quiet_since)
        mine = [wish for wish in self._wishes.values() if wish.role == role]
        place = counted_for([wish.left for wish in mine], task, facts)
        if place is None:
            # More is launched than was wanted: of the shape that it would count for.
            place = counted_for([replace(wish.demand, count=None) for wish in mine], task, facts)
        if place is None:
            return Wanted(None)
        wish = mine[place]
        if wish.endless_since is not None:
            return Wanted(None, wish.demand)
        return Wanted(wish.take(), wish.demand)
