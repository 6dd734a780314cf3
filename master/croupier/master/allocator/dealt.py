"""What a framework could be dealt of one agent, what it is dealt, and why it is dealt nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from croupier.master.allocator.grant import GangPlace, Grant
from croupier.master.allocator.pending_demand import PendingDemand
from croupier.master.allocator.reasons import Cause
from croupier.model.devices import Parts
from croupier.model.resources import NOTHING, Resources


class Fit(NamedTuple):
    """Resources that a framework could be dealt.

    Attributes:
        pending: the demand; None for the whole remainder.
        units: how many units of it.
        room: the resources to take them from.
        places: of a gang, those of its members.
    """

    pending: PendingDemand | None
    units: int
    room: Resources
    places: tuple[GangPlace, ...] = ()


class Rejection(NamedTuple):
    """The reason why a framework could be dealt nothing; `str(detail)` puts it into words."""

    cause: Cause
    detail: object = ""


@dataclass(slots=True)
class Queued:
    """The part of `Dealt` that is for submitted tasks of one shape."""

    resources: Resources = NOTHING
    numbers: list[int] = field(default_factory=list)
    devices: list[Parts] = field(default_factory=list)


@dataclass(slots=True)
class Dealt:
    """Resources that one framework is dealt in a visit.

    Attributes:
        least: the minimum units of an offer, for each demand, before the first deal.
        gangs: the grants of gangs.
        of_gangs: the part of the agent that members of those are dealt.
    """

    offered: Resources = NOTHING
    numbers: list[int] = field(default_factory=list)
    queued: dict[PendingDemand, Queued] = field(default_factory=dict)
    units: dict[PendingDemand, int] = field(default_factory=dict)
    least: dict[PendingDemand, int] = field(default_factory=dict)
    gangs: tuple[Grant, ...] = ()
    of_gangs: Resources = NOTHING

    @property
    def resources(self) -> Resources:
        """All that it is dealt."""
        dealt = self.offered + self.of_gangs
        return sum((each.resources for each in self.queued.values()), dealt)
