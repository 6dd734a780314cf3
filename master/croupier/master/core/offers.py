"""An offer: resources of one agent, leased to one framework."""

from __future__ import annotations

from croupier.master.allocator.grant import Units
from croupier.model.ids import AgentId, FrameworkId, OfferId, Role
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
