"""The step of the master: an event and a time in, effects out."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import assert_never

from croupier.master.core import (
    on_agent,
    on_agent_health,
    on_call,
    on_framework,
    on_preemption,
    on_time,
)
from croupier.master.core.agent_commands import AgentCommand
from croupier.master.core.effects import Answer, Effect, Pause, Step
from croupier.master.core.events import (
    AgentHealth,
    AgentReported,
    AgentStopped,
    AllocationDue,
    FrameworkCalled,
    LaunchUnsent,
    OperatorCommand,
    PeerEvent,
    Query,
    Read,
    Received,
    Register,
    SessionEnded,
    Subscribe,
    TasksReturned,
    TimePassed,
)
from croupier.master.core.framework_commands import FrameworkCommand, TaskCommand
from croupier.master.core.frameworks import Framework
from croupier.master.core.on_task import forget_all
from croupier.master.core.policy_commands import PolicyCommand
from croupier.master.core.role_commands import RoleCommand
from croupier.master.core.state import State
from croupier.master.core.token_commands import TokenCommand
from croupier.model.errors import CroupierError, shortened

Command = TaskCommand | AgentCommand | FrameworkCommand | RoleCommand | PolicyCommand | TokenCommand
Event = PeerEvent | Command | Read | TimePassed | AllocationDue


def step(state: State, event: Event, now: float) -> list[Effect]:
    """Apply one event at time `now` (monotonic seconds) and return the effects in order."""
    return [effect for effect in steps(state, event, now) if not isinstance(effect, Pause)]


def steps(state: State, event: Event, now: float) -> Iterator[Step]:
    """Apply one event in parts, and yield the effects as they are decided.

    Between parts the caller may do other work that neither changes nor reads the state. The state
    is consistent after the last part.
    """
    match event:
        case FrameworkCalled():
            yield from on_call.on_call(state, event, now)
        case AgentReported():
            yield from on_agent.on_agent_reported(state, event, now)
        case Received():
            yield from _on_received(state, event, now)
        case AllocationDue(budget):
            yield from on_time.on_allocation_due(state, budget, now)
            on_preemption.schedule_check(state, now)
        case TimePassed():
            yield from on_time.on_time_passed(state, now)
        case Subscribe():
            yield from on_framework.on_subscribe(state, event, now)
        case Register():
            yield from on_agent.on_register(state, event, now)
        case AgentHealth() | LaunchUnsent() | TasksReturned():
            yield from _on_launches(state, event, now)
        case AgentStopped():
            yield from on_agent.on_agent_stopped(state, event, now)
        case SessionEnded():
            yield from _on_session_ended(state, event, now)
        case OperatorCommand():
            yield from on_operator_command(state, event, now)
        case Read(request, query):
            yield Answer(request, (yield from _query_result(state, query)))
        case _:
            assert_never(event)


def _on_launches(
    state: State, event: AgentHealth | LaunchUnsent | TasksReturned, now: float
) -> Iterator[Effect]:
    if isinstance(event, TasksReturned):
        return on_agent.on_tasks_returned(state, event, now)
    if isinstance(event, LaunchUnsent):
        return on_agent_health.on_launch_unsent(state, event, now)
    return on_agent_health.on_agent_health(state, event, now)


def _on_session_ended(state: State, event: SessionEnded, now: float) -> Iterator[Effect]:
    peer = state.peers.get(event.session)
    if isinstance(peer, Framework):
        yield from on_framework.disconnect(state, peer, event.message, now)
    elif peer is not None:
        yield from on_agent.disconnect(state, peer, event.message, now)


def on_operator_command(
    state: State, command: OperatorCommand[object], now: float
) -> Iterator[Effect]:
    """Execute a command and answer it with its result or its refusal."""
    result: object
    try:
        result = yield from command.execute(state, now)
    except CroupierError as refusal:
        result = shortened(refusal)
    yield Answer(command.request, result)


def _query_result(state: State, query: Query[object]) -> Generator[Pause, None, object]:
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


def _on_received(state: State, event: Received, now: float) -> Iterator[Effect]:
    peer = state.peers.get(event.session)
    if isinstance(peer, Framework):
        peer.last_received = now
        yield from forget_all(peer, state.mark_verdicts_seen(peer, event.verdicts_seen))
    elif peer is not None:
        on_agent.on_received(state, peer, now)
