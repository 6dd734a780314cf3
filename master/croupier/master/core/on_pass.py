"""Passes of the allocator: each grant is an offer, or launches submitted tasks."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.master.core.effects import Effect
from croupier.master.core.on_allocation import offer
from croupier.master.core.on_line import Place, line_up, recall_broken, recall_stranded
from croupier.master.core.on_submit import launch_queued
from croupier.master.core.state import State
from croupier.model.ids import AgentId


def on_allocation_due(state: State, budget: int, now: float) -> Iterator[Effect]:
    """Run a slice of an allocation pass, and do what it grants."""
    filled: dict[AgentId, dict[Place | None, None]] = {}
    for grant in state.allocator.run(now, budget):
        if grant.shape is not None:
            yield from launch_queued(state, grant, now)
            place = (grant.framework_id, (grant.role, grant.shape))
            filled.setdefault(grant.agent_id, {})[place] = None
        else:
            yield from offer(state, grant, state.frameworks[grant.framework_id].offer_lease_s, now)
    yield from recall_stranded(state)
    yield from recall_broken(state, now)
    for agent_id, places in filled.items():
        yield from line_up(state, state.agents[agent_id], places, now)
