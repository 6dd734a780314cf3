"""The demand of a framework over time: since when it wanted each task that it launches.

A unit is wanted since its declaration. A framework that declares unlimited demand, or that keeps
raising it before it is met, always has more tasks: these have no such time. A framework without
declared demand wants a task since its last decline, suppress or revive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from croupier.model.attributes import Constraint
from croupier.model.demand import Demand, counted_for
from croupier.model.ids import Role
from croupier.model.resources import Resources

# Renewals of a demand that was never met, after which it counts as endless.
INSATIABLE = 10

# The identity of a demand within its framework.
DemandKey = tuple[Role, Resources, frozenset[Constraint]]


def demand_key(role: Role, demand: Demand) -> DemandKey:
    """Return the identity of a demand within its framework."""
    return role, demand.unit, frozenset(demand.constraints)


@dataclass(slots=True)
class TrackedDemand:
    """A demand and its history.

    Attributes:
        since: the time of the first declaration.
        waiting: times and numbers of units that wait, oldest first.
        endless_since: the time since which any number is wanted; None for a finite number.
        was_met: whether no unit was wanted at some time.
        renewals: the number of times that the demand was raised before it was met.
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
        """Whether the finite demand counts as endless."""
        return not self.was_met and self.renewals >= INSATIABLE

    @property
    def units(self) -> int:
        """The number of units that wait; 0 for any number."""
        return sum(number for _, number in self.waiting)

    @property
    def left(self) -> Demand:
        """The demand that is left."""
        count = self.units if self.endless_since is None else self.demand.count
        return replace(self.demand, count=count)

    def declare(self, demand: Demand, at: float) -> None:
        """Set the demand; units that are withdrawn are the latest ones."""
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
        """Launch a unit; return the time since which it was wanted, None if unknown."""
        if not self.waiting:
            return None
        since, number = self.waiting[0]
        if number > 1:
            self.waiting[0] = (since, number - 1)
        else:
            self.waiting.popleft()
            self.was_met |= not self.waiting
        return since


class DemandHistory:
    """All demands of one framework."""

    def __init__(self, at: float) -> None:
        self.declares = False
        self._quiet_since = at
        self._tracked: dict[DemandKey, TrackedDemand] = {}

    def __iter__(self) -> Iterator[TrackedDemand]:
        return iter(self._tracked.values())

    def quiet(self, at: float) -> None:
        """Record that the framework wanted nothing at `at`."""
        self._quiet_since = at

    def declare(self, demands: Sequence[Demand], first: Role, at: float) -> None:
        """Replace all demands; `first` is the role of demands that name none."""
        if not demands and self.declares:
            self._quiet_since = at
        self.declares = bool(demands)
        before, self._tracked = self._tracked, {}
        for demand in demands:
            role = demand.role or first
            key = demand_key(role, demand)
            tracked = before.get(key) or TrackedDemand(role, demand, at)
            tracked.declare(demand, at)
            self._tracked[key] = tracked

    def launch(
        self, role: Role, task: Resources, facts: Mapping[str, str]
    ) -> tuple[float | None, Demand | None]:
        """Count a task that is launched in the role, on an agent with these attributes.

        Returns:
            The time since which it was wanted, if it has one, and the demand that it counts for,
            if one was declared.
        """
        if not self.declares:
            return self._quiet_since, None
        mine = [tracked for tracked in self._tracked.values() if tracked.role == role]
        place = counted_for([tracked.left for tracked in mine], task, facts)
        if place is None:
            # The demand is exceeded: use the one that the task would count for.
            endless = [replace(tracked.demand, count=None) for tracked in mine]
            place = counted_for(endless, task, facts)
        if place is None:
            return None, None
        tracked = mine[place]
        if tracked.endless_since is not None:
            return None, tracked.demand
        return tracked.take(), tracked.demand
