"""An offer: resources of one agent, promised to one framework until the lease ends."""

from __future__ import annotations

from dataclasses import dataclass

from croupier.model.ids import AgentId, FrameworkId, OfferId
from croupier.model.resources import Resources


@dataclass(frozen=True, slots=True)
class Offer:
    """An outstanding offer. It ends accepted, declined, rescinded or expired; once.

    Attributes:
        units: how many units of the framework's demand it is; 0 if it declared none.
        made_at: seconds on the master's monotonic clock.
        expires_at: the same.
    """

    offer_id: OfferId
    framework_id: FrameworkId
    agent_id: AgentId
    resources: Resources
    units: int
    made_at: float
    expires_at: float
