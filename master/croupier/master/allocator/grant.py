"""What a pass decides."""

from __future__ import annotations

from dataclasses import dataclass

from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources

# Units of each shape.
Units = tuple[tuple[Resources, int], ...]


@dataclass(frozen=True, slots=True)
class Grant:
    """The decision to offer `resources` of an agent to a framework; they are charged to it.

    Attributes:
        role: which of the framework's roles they are charged to.
        units: how many units of which of its shapes these are; empty if it declared none.
        deals: the numbers of the deals that it is made of, in the order of all deals ever
            made; one for each unit, or for the first units if an offer has a minimum.
    """

    framework_id: FrameworkId
    role: Role
    agent_id: AgentId
    resources: Resources
    units: Units
    deals: tuple[int, ...]

    def joined(self, other: Grant) -> Grant:
        """This and a later grant of the same agent to the same framework, as one."""
        units = dict(self.units)
        for unit, number in other.units:
            units[unit] = units.get(unit, 0) + number
        return Grant(
            self.framework_id,
            self.role,
            self.agent_id,
            self.resources + other.resources,
            tuple(units.items()),
            self.deals + other.deals,
        )
