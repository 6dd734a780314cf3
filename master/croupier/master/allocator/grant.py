"""Grants: the decisions of a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from croupier.master.allocator.pending_demand import Shape
from croupier.model.devices import Parts
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources

Units = tuple[tuple[Resources, int], ...]


class GangPlace(NamedTuple):
    """The agent of one member of a gang, and what of it the member gets."""

    agent_id: AgentId
    resources: Resources


class Grant(NamedTuple):
    """The decision to offer `resources` of an agent to a framework; they are charged to it.

    Attributes:
        role: the framework's role that they are charged to.
        units: the number of units of each shape; empty without declared demand.
        deals: the numbers of its deals; see `Tree.deal`.
        shape: of the submitted tasks that it is for; None if it is to be offered.
        places: of a gang, those of its members by rank, which may be on several agents;
            `agent_id` is that of the first, and `resources` are the scalars of all.
        devices: the slots that each unit of that shape gets of named devices; empty without any.
    """

    framework_id: FrameworkId
    role: Role
    agent_id: AgentId
    resources: Resources
    units: Units
    deals: tuple[int, ...]
    shape: Shape | None = None
    places: tuple[GangPlace, ...] = ()
    devices: tuple[Parts, ...] = ()

    @property
    def place(self) -> tuple[FrameworkId, Role, AgentId]:
        """Framework, role and agent."""
        return self.framework_id, self.role, self.agent_id

    def joined(self, other: Grant) -> Grant:
        """Return this and a later grant of the same agent to the same framework as one."""
        units: dict[Resources, int] = {}
        for unit, number in self.units + other.units:
            units[unit] = units.get(unit, 0) + number
        return Grant(
            self.framework_id,
            self.role,
            self.agent_id,
            self.resources + other.resources,
            tuple(units.items()),
            self.deals + other.deals,
            self.shape,
            devices=self.devices + other.devices,
        )


def merged(grants: Iterable[Grant], is_one: Callable[[Grant], bool]) -> list[Grant]:
    """Join grants of one place and shape, as far as the result may be one offer."""
    found: list[Grant] = []
    places: dict[tuple[object, ...], int] = {}
    for grant in grants:
        # Each gang is placed by itself.
        key = (*grant.place, grant.shape, grant.deals if grant.places else ())
        place = places.get(key)
        joined = None if place is None else found[place].joined(grant)
        if place is not None and joined is not None and is_one(joined):
            found[place] = joined
        else:
            places[key] = len(found)
            found.append(grant)
    return found
