"""The step of the master: an event and a time in, effects out.

A deadline that passes is an event like those of peers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import assert_never

from croupier.master.core import (
    deadlines,
    events,
    on_accounting,
    on_agent,
    on_call,
    on_framework,
    on_hold,
    on_preemption,
    on_reservation,
    verdicts,
)
from croupier.master.core.agent_commands import OperateAgent
from croupier.master.core.agents import Agent, AgentState
from croupier.master.core.effects import Answer, Close, Effect, Pause, SessionId, Step
from croupier.master.core.framework_commands import OperatorKill, TeardownFramework
from croupier.master.core.frameworks import Framework
from croupier.master.core.hold_commands import CreateHold, ReleaseHold
from croupier.master.core.on_allocation import offer, on_offer_due
from croupier.master.core.on_gang import on_gathering_due, schedule_gathering, settle_gangs
from croupier.master.core.on_line import Place, line_up, recall_broken, recall_stranded
from croupier.master.core.on_submit import launch_queued
from croupier.master.core.on_task import forget_all, resend_terminal_updates
from croupier.master.core.policy_commands import UpdatePolicy
from croupier.master.core.reservation_commands import CreateReservation, DeleteReservation
from croupier.master.core.role_commands import UpdateRoles
from croupier.master.core.state import State
from croupier.master.core.token_commands import CreateToken, JoinAgent, RevokeToken
from croupier.model.errors import CroupierError, Unavailable, shortened
from croupier.model.ids import AgentId

AccessCommand = UpdatePolicy | CreateToken | RevokeToken | JoinAgent
HoldCommand = CreateHold | ReleaseHold
ReservationCommand = CreateReservation | DeleteReservation
Command = (
    OperatorKill
    | OperateAgent
    | TeardownFramework
    | UpdateRoles
    | HoldCommand
    | ReservationCommand
    | AccessCommand
)
TimeEvent = events.TimePassed | events.AllocationDue | events.AccountingDue
Event = events.PeerEvent | Command | events.Read | TimeEvent


def step(state: State, event: Event, now: float) -> list[Effect]:
    """Apply one event at time `now` (monotonic seconds) and return the effects in order."""
    return [effect for effect in steps(state, event, now) if not isinstance(effect, Pause)]


def steps(state: State, event: Event, now: float) -> Iterator[Step]:
    """Apply one event in parts, and yield the effects as they are decided.

    Between parts the caller may do other work that neither changes nor reads the state. The state
    is consistent after the last part.
    """
    on_accounting.begin_step(state, now)
    match event:
        case events.FrameworkCalled():
            yield from on_call.on_call(state, event, now)
        case (
            events.AgentReported()
            | events.TasksReturned()
            | events.AgentHealth()
            | events.ExecutorSaid()
        ):
            yield from on_agent.on_report(state, event, now)
        case events.Received():
            yield from _on_received(state, event, now)
        case events.AllocationDue() | events.TimePassed() | events.AccountingDue():
            yield from _on_time(state, event, now)
        case events.Subscribe():
            yield from on_framework.on_subscribe(state, event, now)
        case events.Register():
            yield from on_agent.on_register(state, event, now)
        case events.LaunchUnsent():
            yield from on_agent.on_launch_unsent(state, event, now)
        case events.AgentStopped():
            yield from on_agent.on_agent_stopped(state, event, now)
        case events.SessionEnded():
            yield from _on_session_ended(state, event, now)
        case events.OperatorCommand():
            yield from on_operator_command(state, event, now)
        case events.Read(request, query):
            yield Answer(request, (yield from _query_result(state, query)))
        case _:
            assert_never(event)
    if state.ended_members:
        yield from settle_gangs(state, now)


def _on_time(state: State, event: TimeEvent, now: float) -> Iterator[Effect]:
    match event:
        case events.AllocationDue(budget):
            yield from on_allocation_due(state, budget, now)
            on_preemption.schedule_check(state, now)
            schedule_gathering(state, now)
        case events.TimePassed():
            yield from on_time_passed(state, now)
        case events.AccountingDue(wall_ms):
            state.set_wall(wall_ms, now)
            yield from on_accounting.on_accounting(state, wall_ms)
            yield from on_reservation.review_all(state, now)
        case _:
            assert_never(event)


def _on_session_ended(state: State, event: events.SessionEnded, now: float) -> Iterator[Effect]:
    peer = state.peers.get(event.session)
    if isinstance(peer, Framework):
        yield from on_framework.disconnect(state, peer, event.message, now)
    elif peer is not None:
        yield from on_agent.disconnect(state, peer, event.message, now)


def on_operator_command(
    state: State, command: events.OperatorCommand[object], now: float
) -> Iterator[Effect]:
    """Execute a command and answer it with its result or its refusal."""
    result: object
    try:
        result = yield from command.execute(state, now)
    except CroupierError as refusal:
        result = shortened(refusal)
    yield Answer(command.request, result)


def _query_result(state: State, query: events.Query[object]) -> Generator[Pause, None, object]:
    """Return the result of a query, or its error; a long query is a generator.

    A query changes nothing, so a bug in one need not end the master.
    """
    try:
        result = query(state)
        return (yield from result) if isinstance(result, Generator) else result
    except CroupierError as refusal:
        return refusal
    except Exception as mistake:
        return CroupierError(f"the question failed: {mistake!r}")


def _on_received(state: State, event: events.Received, now: float) -> Iterator[Effect]:
    peer = state.peers.get(event.session)
    if isinstance(peer, Framework):
        peer.last_received = now
        yield from forget_all(peer, verdicts.mark_seen(state, peer, event.verdicts_seen))
    elif peer is not None:
        on_agent.on_received(state, peer, now)


def on_time_passed(state: State, now: float) -> Iterator[Effect]:
    """Handle all deadlines up to `now`."""
    state.allocator.wake(now)
    for deadline in state.deadlines.due(now):
        yield from _on_due(state, deadline, now)


def _on_due(state: State, deadline: deadlines.Deadline, now: float) -> Iterator[Effect]:
    match deadline:
        case deadlines.OfferExpiry(offer_id):
            yield from on_offer_due(state, state.offers[offer_id], now)
        case deadlines.FailoverTimeout(framework_id):
            yield from on_framework.on_failover_timeout(state, framework_id, now)
        case deadlines.AgentTimeout(agent_id):
            agent = state.agents.get(agent_id)
            waits = (AgentState.DISCONNECTED, AgentState.ABSENT)
            if agent is not None and agent.state in waits:
                yield from on_agent.on_agent_due(state, agent, now)
        case deadlines.ResendTerminalUpdates(framework_id):
            framework = state.frameworks.get(framework_id)
            if framework is not None and framework.session is not None:
                yield from resend_terminal_updates(state, framework, now)
        case deadlines.StarvationCheck():
            yield from on_preemption.on_preemption_due(state, now)
        case deadlines.PreemptionGrace(framework_id, task_id):
            yield from on_preemption.on_grace_over(state, framework_id, task_id, now)
        case deadlines.GatheringReview():
            on_gathering_due(state, now)
        case deadlines.HoldReview(hold_id):
            yield from on_hold.on_hold_due(state, state.holds[hold_id], now)
        case deadlines.ReservationReview():
            yield from on_reservation.review_all(state, now)
        case deadlines.SessionSilence(session):
            yield from _on_silence(state, session, now)
        case _:
            assert_never(deadline)


def _on_silence(state: State, session: SessionId, now: float) -> Iterator[Effect]:
    """Suspect a silent agent, or close a session that was silent for too long."""
    peer = state.peers.get(session)
    if peer is None:
        return
    rules, silent_s = state.settings, now - peer.last_received
    may_suspect = isinstance(peer, Agent) and peer.state is AgentState.CONNECTED
    allowed_s = rules.suspect_s(len(state.agents)) if may_suspect else rules.agent_timeout_s
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
    state.deadlines.set(deadlines.SessionSilence(session), due)


def on_allocation_due(state: State, budget: int, now: float) -> Iterator[Effect]:
    """Run a slice of an allocation pass, and carry out its grants."""
    filled: dict[AgentId, dict[Place | None, None]] = {}
    for grant in state.allocator.run(now, budget):
        if grant.shape is not None:
            yield from launch_queued(state, grant, now)
            if grant.agent_id in state.places or grant.places:
                # No task is lined up there.
                continue
            place = (grant.framework_id, (grant.role, grant.shape))
            filled.setdefault(grant.agent_id, {})[place] = None
        else:
            yield from offer(state, grant, state.frameworks[grant.framework_id].offer_lease_s, now)
    yield from recall_stranded(state)
    yield from recall_broken(state, now)
    for agent_id, places in filled.items():
        yield from line_up(state, state.agents[agent_id], places, now)
