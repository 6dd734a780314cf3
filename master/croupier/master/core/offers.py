"""An offer: resources of one agent, promised to one framework until the lease ends."""

from __future__ import annotations

from dataclasses import dataclass

from croupier.model.ids import AgentId, FrameworkId, OfferId, Role
from croupier.model.resources import Resources

# Shapes of a demand, and how many units of each.
Units = tuple[tuple[Resources, int], ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """An outstanding offer. It ends accepted, declined, rescinded or expired; once.

    Attributes:
        role: of the framework's; what is launched on it is charged to this.
        units: what it is of the framework's demand; nothing if that declared none.
        made_at: seconds on the master's monotonic clock.
        expires_at: the same.
    """

    offer_id: OfferId
    framework_id: FrameworkId
    agent_id: AgentId
    role: Role
    resources: Resources
    units: Units
    made_at: float
    expires_at: float
