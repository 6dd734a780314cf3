"""Pending demand: one declared shape, less the units in outstanding offers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby, repeat
from typing import NamedTuple

from croupier.model.attributes import Constraint
from croupier.model.demand import Demand, Placement, counted_for
from croupier.model.devices import DeviceNeed, DeviceRequest, needs_of
from croupier.model.gang import ANY_AGENTS, GangPlacement
from croupier.model.ids import AgentId
from croupier.model.resources import Resources

# Number of units of a demand without a count.
MANY = 10**9


class GangShape(NamedTuple):
    """The members of a gang.

    Attributes:
        runs: units of members in the order of rank, each with how many in a row have it.
        placement: where they may run.
        devices: what each asks of its named devices.
    """

    runs: tuple[tuple[Resources, int], ...]
    placement: GangPlacement = ANY_AGENTS
    devices: DeviceRequest | None = None

    @property
    def units(self) -> tuple[Resources, ...]:
        """The distinct units."""
        return tuple(dict.fromkeys(unit for unit, _ in self.runs))

    @property
    def members(self) -> list[Resources]:
        """The unit of each member, by rank."""
        return list(chain.from_iterable(repeat(unit, number) for unit, number in self.runs))


def gang_shape(
    members: Iterable[Resources], placement: GangPlacement, devices: DeviceRequest | None = None
) -> GangShape:
    """Return the shape of a gang with these members, which all ask for the same `devices`."""
    runs = tuple((unit, len(list(run))) for unit, run in groupby(members))
    return GangShape(runs, placement, devices)


class Shape(NamedTuple):
    """The parts of a submitted task that the allocator uses; equal tasks share a queue.

    Attributes:
        unit: the resources of a task, or of all tasks of a group or gang.
        placement: the agents on which it may run.
        gang: the members of a gang, which may be on several agents; None: it is of no gang.
        max_completion_ms: the declared time, rounded up by `rounded_time`; 0 if there is none.
        devices: what its tasks need of named devices; empty if any will do, or it is of a gang.
    """

    unit: Resources
    placement: Placement
    max_completion_ms: int = 0
    gang: GangShape | None = None
    devices: tuple[DeviceNeed, ...] = ()

    def demand(self, count: int) -> Demand:
        """Return the demand of this many such tasks."""
        constraints = self.placement.constraints
        return Demand(self.unit, count, constraints, max_completion_ms=self.max_completion_ms)


def rounded_time(max_completion_ms: int) -> int:
    """Return the next 1, 1.5, 2, 3, 4, 6, 8, 12... times a second that is not less.

    So tasks with many different times share few queues.
    """
    doubled = 1000
    while doubled < max_completion_ms:
        doubled *= 2
    lower = doubled * 3 // 4
    return lower if lower >= max_completion_ms and lower >= 1000 else doubled


class PendingDemand:
    """A demand, counted down.

    Attributes:
        demand: the demand; launches reduce its count.
        shape: of the submitted tasks that it counts; None if the framework declared it.
        gang: the members of the gang that it stands for; None if it is of no gang.
        outstanding: units of it in offers that were not answered yet.
        needs: what its tasks need of named devices; empty if any will do.
        unmet: the first constraint that each checked agent does not pass; None if it passes all.
        pieces: the amounts of which one agent must have room for one: the unit, or of a gang the
            units of its members.
        misses: of a gang, the free resources of agents that have no room for any member.
        gathers: of a gang for which room is gathered, the name of the reservations; else empty.
        missed_at: of a gang, the growth of the pool at which it did not fit; see `AgentPool`.
    """

    __slots__ = (
        "demand",
        "gang",
        "gathers",
        "missed_at",
        "misses",
        "needs",
        "outstanding",
        "pieces",
        "shape",
        "unmet",
    )

    def __init__(self, demand: Demand, shape: Shape | None = None) -> None:
        self.demand, self.shape, self.outstanding = demand, shape, 0
        self.needs: tuple[DeviceNeed, ...] = ()
        if shape is not None:
            self.needs = shape.devices
        elif demand.devices is not None:
            self.needs = needs_of(demand.unit, demand.devices)
        self.unmet: dict[AgentId, Constraint | None] = {}
        self.gang = None if shape is None else shape.gang
        self.pieces = (demand.unit,) if self.gang is None else self.gang.units
        self.misses: dict[AgentId, Resources] = {}
        self.missed_at = -1
        self.gathers = ""

    @property
    def left(self) -> int:
        """Units demanded and not offered yet; `MANY` if the demand has no count."""
        if self.demand.count is None:
            return MANY
        return max(self.demand.count - self.outstanding, 0)

    @property
    def least(self) -> int:
        """The minimum units of an offer, or all that are left if they are fewer."""
        return min(self.demand.min_per_offer, self.left)

    def needs_of(self, piece: Resources) -> tuple[DeviceNeed, ...]:
        """Return what one of its `pieces` needs of named devices; empty if any will do."""
        gang = self.gang
        if gang is None:
            return self.needs
        return () if gang.devices is None else needs_of(piece, gang.devices)

    @property
    def needed(self) -> dict[str, int]:
        """Thousandths of each scalar that the least offer of it takes."""
        return {name: milli * self.least for name, milli in self.demand.unit.scalars.items()}


def resources_of(pending: Iterable[PendingDemand] | None) -> set[str]:
    """Return the names of the scalars that any of the demands asks for."""
    return {name for each in pending or () for name in each.demand.unit.scalars}


def queue_of(shape: Shape) -> PendingDemand:
    """Return the pending demand of submitted tasks of this shape; its count is 0."""
    return PendingDemand(shape.demand(0), shape=shape)


def carried(before: Sequence[PendingDemand], demands: Sequence[Demand]) -> list[PendingDemand]:
    """Return new pending demand that counts old offers of the same shape, or else unit."""
    found = [PendingDemand(demand) for demand in demands]
    for known in before:
        same_unit = [each for each in found if each.demand.unit == known.demand.unit]
        asked = set(known.demand.constraints), known.needs
        same = [each for each in same_unit if (set(each.demand.constraints), each.needs) == asked]
        for each in (same or same_unit)[:1]:
            each.outstanding += known.outstanding
    return found


def shapes(pending: Sequence[PendingDemand] | None) -> object:
    """Return the part of the demand that decides which agents can serve it."""
    if pending is None:
        return None
    return [
        (
            each.demand.unit,
            each.demand.constraints,
            each.needs,
            each.least,
            each.demand.max_completion_ms,
        )
        for each in pending
    ]


def return_units(
    pending: Sequence[PendingDemand], unit: Resources, number: int, facts: Mapping[str, str]
) -> None:
    """Take units out of the offers of an agent with these attributes.

    Demand whose constraints the agent passes goes first.
    """
    same = [each for each in pending if each.demand.unit == unit]
    if len(same) > 1:
        same.sort(key=lambda each: not each.demand.suits(facts))
    for each in same:
        ended = min(number, each.outstanding)
        each.outstanding -= ended
        number -= ended


def count_down(pending: Sequence[PendingDemand], task: Resources, facts: Mapping[str, str]) -> None:
    """Count down the demand that a task was launched for, on an agent with these attributes."""
    place = counted_for([each.demand for each in pending], task, facts)
    if place is not None:
        pending[place].demand = pending[place].demand.counted_down()
