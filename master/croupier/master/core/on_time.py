"""What time alone brings: leases end, the silent are given up."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.master.core import on_agent, on_framework, on_preemption
from croupier.master.core.agents import Agent, AgentState
from croupier.master.core.effects import Close, Effect, SessionId
from croupier.master.core.frameworks import FrameworkState
from croupier.master.core.on_allocation import rescind
from croupier.master.core.on_task import tell_orphans
from croupier.master.core.state import DeadlineKey, State
from croupier.model.errors import Unavailable
from croupier.model.ids import AgentId, FrameworkId, OfferId, TaskId


def on_time_passed(state: State, now: float) -> Iterator[Effect]:
    """Do everything that has come due by `now`."""
    state.allocator.wake(now)
    for key in state.deadlines.due(now):
        yield from _on_due(state, key, now)


def _on_due(state: State, key: DeadlineKey, now: float) -> Iterator[Effect]:
    match key:
        case ("offer", offer_id):
            # An expired offer counts as declined, else who never answers would be dealt
            # the same agent again and again.
            offer = state.offers[OfferId(offer_id)]
            yield from rescind(state, offer, "its lease ended", now, state.settings.refuse_s)
        case ("framework", framework_id):
            framework = state.frameworks.get(FrameworkId(framework_id))
            if framework is not None and framework.state is FrameworkState.DISCONNECTED:
                yield from on_framework.remove(state, framework, "its failover timeout ended", now)
        case ("agent", agent_id):
            agent = state.agents.get(AgentId(agent_id))
            if agent is not None and agent.state is AgentState.DISCONNECTED:
                yield from on_agent.on_agent_due(state, agent, now)
        case ("resend", framework_id):
            framework = state.frameworks.get(FrameworkId(framework_id))
            if framework is not None and framework.session is not None:
                yield from tell_orphans(state, framework, now)
        case ("preemption", _):
            yield from on_preemption.on_preemption_due(state, now)
        case ("preempt", named):
            framework_id, _, task_id = named.partition(" ")
            yield from on_preemption.on_grace_over(
                state, FrameworkId(framework_id), TaskId(task_id), now
            )
        case ("silence", session):
            yield from _on_silence(state, SessionId(int(session)), now)


def _on_silence(state: State, session: SessionId, now: float) -> Iterator[Effect]:
    peer = state.peers.get(session)
    if peer is None:
        return
    suspicious = isinstance(peer, Agent) and peer.state is AgentState.CONNECTED
    at = peer.last_heard + (
        state.settings.suspect_s if suspicious else state.settings.agent_timeout_s
    )
    if at > now:
        state.deadlines.set(("silence", str(session)), at)
        return
    if (
        isinstance(peer, Agent)
        and suspicious
        and state.settings.agent_timeout_s > now - peer.last_heard
    ):
        yield from on_agent.suspect(state, peer, now)
        at = peer.last_heard + state.settings.agent_timeout_s
        state.deadlines.set(("silence", str(session)), at)
        return
    message = f"nothing was heard for {now - peer.last_heard:.0f} s"
    yield Close(session, Unavailable(message))
    if isinstance(peer, Agent):
        # That it is due now comes up next, among all who are.
        yield from on_agent.disconnect(state, peer, message, now)
    else:
        yield from on_framework.disconnect(state, peer, message, now)
