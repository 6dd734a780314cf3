"""One shape that a framework wants, and how much of it is on offer already."""

from __future__ import annotations

from dataclasses import replace

from croupier.model.attributes import Constraint
from croupier.model.demand import Demand
from croupier.model.ids import AgentId
from croupier.model.resources import Resources

MANY = 10**9


class Want:
    """A demand, counted down.

    Attributes:
        demand: its count is what is wanted beyond what was launched.
        outstanding: units of it that stand in offers not yet answered.
        unmet: for each agent that was looked at, the first constraint that it does not pass;
            None if it passes all.
    """

    __slots__ = ("demand", "outstanding", "unmet")

    def __init__(self, demand: Demand, outstanding: int = 0) -> None:
        """Want what `demand` says."""
        self.demand = demand
        self.outstanding = outstanding
        self.unmet: dict[AgentId, Constraint | None] = {}

    @property
    def left(self) -> int:
        """Units wanted beyond what is offered; very many if there is no end."""
        if self.demand.count is None:
            return MANY
        return max(self.demand.count - self.outstanding, 0)

    @property
    def least(self) -> int:
        """The fewest units worth offering: the minimum of an offer, or all that is left."""
        return min(self.demand.min_per_offer, self.left)

    def launched(self, units: int) -> None:
        """Count the demand down."""
        if self.demand.count is not None:
            self.demand = replace(self.demand, count=max(self.demand.count - units, 0))

    def is_made_of(self, task: Resources) -> bool:
        """Whether `task` takes just what one unit does."""
        unit = self.demand.unit
        if unit.scalars == task.scalars and not task.ranges:
            return True
        return unit.units_within(task, 2) == 1 and all(
            milli == unit[name] for name, milli in task.scalars.items()
        )
