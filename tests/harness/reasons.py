"""Why a framework is not dealt more, in one step."""

from __future__ import annotations

from croupier.master.allocator.queries import Queries
from croupier.master.allocator.reasons import PassedOver
from croupier.model.ids import AgentId, FrameworkId


def reasons_of(
    queries: Queries, framework_id: FrameworkId, agent_id: AgentId | None = None, now: float = 0.0
) -> list[PassedOver]:
    """Return all that `Queries.explaining` yields but the moments for other work."""
    found = queries.explaining(framework_id, agent_id, now)
    return [each for each in found if each is not None]
