"""An offer: resources of one agent, leased to one framework."""

from __future__ import annotations

from croupier.master.allocator.grant import Units
from croupier.master.core.holds import place_of
from croupier.model.ids import NO_HOLD, AgentId, FrameworkId, HoldId, OfferId, Role
from croupier.model.resources import Resources
from croupier.model.value import value


@value
class Offer:
    """An outstanding offer, until it is accepted, declined, rescinded or expires.

    Attributes:
        role: the framework's role that tasks on this offer are charged to.
        units: what it covers of the framework's demand; empty if none was declared.
        made_at: seconds on the master's monotonic clock; so are the other times.
        kept_since: when the framework's party began to keep the agent without a launch; see
            `allocator.back_off`.
        hold_id: the hold that the resources are of; empty if they are of none.
    """

    offer_id: OfferId
    framework_id: FrameworkId
    agent_id: AgentId
    role: Role
    resources: Resources
    units: Units
    made_at: float
    expires_at: float
    kept_since: float
    hold_id: HoldId = NO_HOLD

    @property
    def place(self) -> AgentId:
        """Its agent, or its hold, by the name that the allocator has for it."""
        return place_of(self.agent_id, self.hold_id)
