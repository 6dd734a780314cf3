"""One shape that a framework wants, and how much of it is on offer already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from croupier.model.attributes import Constraint
from croupier.model.demand import Demand, counted_for
from croupier.model.ids import AgentId
from croupier.model.resources import Resources

MANY = 10**9


class PendingDemand:
    """A demand, counted down.

    Attributes:
        demand: its count is what is wanted beyond what was launched.
        outstanding: units of it that stand in offers not yet answered.
        unmet: for each agent that was looked at, the first constraint that it does not pass;
            None if it passes all.
    """

    __slots__ = ("demand", "outstanding", "unmet")

    def __init__(self, demand: Demand, outstanding: int = 0) -> None:
        """PendingDemand what `demand` says."""
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

    @property
    def needed(self) -> dict[str, int]:
        """Thousandths of each scalar that the least offer of it takes."""
        return {name: milli * self.least for name, milli in self.demand.unit.scalars.items()}


def carried(before: Sequence[PendingDemand], demands: Sequence[Demand]) -> list[PendingDemand]:
    """New wants; what stands in offers of the same shape, or else of the same unit, does still."""
    wants = [PendingDemand(demand) for demand in demands]
    for known in before:
        same_unit = [want for want in wants if want.demand.unit == known.demand.unit]
        asked = set(known.demand.constraints)
        same = [want for want in same_unit if set(want.demand.constraints) == asked]
        for want in (same or same_unit)[:1]:
            want.outstanding += known.outstanding
    return wants


def shapes(wants: Sequence[PendingDemand] | None) -> object:
    """What agents are of use, whatever number of units is wanted."""
    if wants is None:
        return None
    return [(each.demand.unit, each.demand.constraints, each.least) for each in wants]


def give_back(
    wants: Sequence[PendingDemand], unit: Resources, number: int, facts: Mapping[str, str]
) -> None:
    """So many units stand no more in an offer, of an agent with these attributes."""
    for want in _fitting(wants, facts):
        if want.demand.unit == unit:
            ended = min(number, want.outstanding)
            want.outstanding -= ended
            number -= ended


def count_down(wants: Sequence[PendingDemand], task: Resources, facts: Mapping[str, str]) -> None:
    """A task was launched on an agent with these attributes."""
    place = counted_for([want.demand for want in wants], task, facts)
    if place is not None:
        wants[place].demand = wants[place].demand.counted_down()


def _fitting(wants: Sequence[PendingDemand], facts: Mapping[str, str]) -> list[PendingDemand]:
    """Those first whose constraints an agent with these attributes passes."""
    return (
        sorted(wants, key=lambda want: not want.demand.suits(facts))
        if len(wants) > 1
        else list(wants)
    )
