"""Time that passes: slices of allocation passes, and deadlines such as the end of a lease."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from croupier.master.core import on_agent, on_framework, on_preemption
from croupier.master.core.agents import Absent, Agent, Connected, Disconnected
from croupier.master.core.deadlines import (
    AgentTimeout,
    Deadline,
    FailoverTimeout,
    OfferExpiry,
    PreemptionGrace,
    ResendTerminalUpdates,
    SessionSilence,
    StarvationCheck,
)
from croupier.master.core.effects import Close, Effect, SessionId
from croupier.master.core.on_allocation import offer, on_offer_due
from croupier.master.core.on_line import Place, line_up, recall_broken, recall_stranded
from croupier.master.core.on_submit import launch_queued
from croupier.master.core.on_task import resend_terminal_updates
from croupier.master.core.state import State
from croupier.model.errors import Unavailable
from croupier.model.ids import AgentId


def on_time_passed(state: State, now: float) -> Iterator[Effect]:
    """Handle all deadlines up to `now`."""
    state.allocator.wake(now)
    for deadline in state.deadlines.due(now):
        yield from _on_due(state, deadline, now)


def _on_due(state: State, deadline: Deadline, now: float) -> Iterator[Effect]:
    match deadline:
        case OfferExpiry(offer_id):
            yield from on_offer_due(state, state.offers[offer_id], now)
        case FailoverTimeout(framework_id):
            framework = state.frameworks.get(framework_id)
            if framework is not None and framework.is_disconnected:
                yield from on_framework.remove(state, framework, "its failover timeout ended", now)
        case AgentTimeout(agent_id):
            agent = state.agents.get(agent_id)
            if agent is not None and isinstance(agent.state, Disconnected | Absent):
                yield from on_agent.on_agent_due(state, agent, now)
        case ResendTerminalUpdates(framework_id):
            framework = state.frameworks.get(framework_id)
            if framework is not None and framework.session is not None:
                yield from resend_terminal_updates(state, framework, now)
        case StarvationCheck():
            yield from on_preemption.on_preemption_due(state, now)
        case PreemptionGrace(framework_id, task_id):
            yield from on_preemption.on_grace_over(state, framework_id, task_id, now)
        case SessionSilence(session):
            yield from _on_silence(state, session, now)
        case _:
            assert_never(deadline)


def _on_silence(state: State, session: SessionId, now: float) -> Iterator[Effect]:
    """Suspect a silent agent, or close a session that was silent for too long."""
    peer = state.peers.get(session)
    if peer is None:
        return
    rules, silent_s = state.settings, now - peer.last_received
    may_suspect = isinstance(peer, Agent) and isinstance(peer.state, Connected)
    allowed_s = rules.suspect_s if may_suspect else rules.agent_timeout_s
    due = peer.last_received + allowed_s
    if due <= now and isinstance(peer, Agent) and may_suspect and rules.agent_timeout_s > silent_s:
        yield from on_agent.suspect(state, peer, now)
        due = peer.last_received + rules.agent_timeout_s
    elif due <= now:
        message = f"nothing was heard for {silent_s:.0f} s"
        yield Close(session, Unavailable(message))
        if isinstance(peer, Agent):
            # Its own timeout is handled next if it is due as well.
            yield from on_agent.disconnect(state, peer, message, now)
        else:
            yield from on_framework.disconnect(state, peer, message, now)
        return
    state.deadlines.set(SessionSilence(session), due)


def on_allocation_due(state: State, budget: int, now: float) -> Iterator[Effect]:
    """Run a slice of an allocation pass, and carry out its grants."""
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
