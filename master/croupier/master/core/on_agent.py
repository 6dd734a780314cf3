"""Agents register, report, disconnect and leave. `on_sync` syncs the tasks of a registration.

Rule: an agent with a problem is not offered; its tasks run on and stay charged. It has no record of
launches that it refused, so the master records their terminal status.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from croupier.master.core import hold_charges, on_line, registration, task_moves
from croupier.master.core.agents import Agent, AgentState
from croupier.master.core.authorisation import may_view_agent
from croupier.master.core.deadlines import AgentTimeout, SessionSilence
from croupier.master.core.effects import Close, Deposed, Effect, Happened, Save, Send, Step
from croupier.master.core.events import (
    AgentHealth,
    AgentReported,
    AgentStopped,
    Claim,
    ExecutorSaid,
    LaunchUnsent,
    RefusedLaunch,
    Register,
    TasksReturned,
)
from croupier.master.core.facts import (
    AgentHealthy,
    AgentJoined,
    AgentLeft,
    AgentRefused,
    AgentUnhealthy,
    Joined,
)
from croupier.master.core.messages import AgentFailed, Registered
from croupier.master.core.on_allocation import rescind
from croupier.master.core.on_executor import on_said
from croupier.master.core.on_hold import end_hold, restore_holds
from croupier.master.core.on_requeue import (
    causes_first,
    end_earlier_run,
    end_run,
    end_unlisted_runs,
    starts_again,
)
from croupier.master.core.on_sync import sync
from croupier.master.core.on_task import drop, forget_removed, set_status
from croupier.master.core.records import ForgetAgent
from croupier.master.core.state import State
from croupier.model.errors import (
    Conflict,
    CroupierError,
    FailedOver,
    NotLeader,
    ProtocolViolation,
    Unavailable,
)
from croupier.model.health import problems_text
from croupier.model.ids import MAX_ID_BYTES, AgentId, FrameworkId
from croupier.model.task import Reason, TaskState
from croupier.model.task_transitions import REPORTABLE


def on_register(state: State, event: Register, now: float) -> Iterator[Step]:
    """Connect an agent: new, reconnected, or replacing an older session."""
    try:
        # First, so that the rest of an impostor's message has no effect.
        event = registration.identified(state, event)
        if event.claim in (Claim.UNPROVEN, Claim.FOREIGN):
            raise Conflict(event.objection)
    except CroupierError as refusal:
        yield from _refuse(event, refusal)
        return
    if event.claim is Claim.NEWER:
        yield Close(event.session, NotLeader(event.objection))
        yield Deposed(event.objection)
        return
    if event.session in state.peers:
        yield Close(event.session, ProtocolViolation("REGISTER must be the first report"))
        peer = state.peers[event.session]
        if isinstance(peer, Agent):
            yield from disconnect(state, peer, "it registered twice", now)
        return
    try:
        yield from registration.check_registration(state, event)
    except CroupierError as refusal:
        yield Close(event.session, refusal)
        return
    try:
        registration.check_order(state, event)
        registration.check_kinds(state, event)
        registration.check_size(state, event)
    except (Conflict, Unavailable) as refusal:
        yield from _refuse(event, refusal)
        return
    agent = state.agents.get(event.agent_id)
    kind: Joined = "again" if agent else "new"
    if agent is not None and agent.session is not None:
        message = "a newer session of this agent has taken over"
        yield Close(agent.session, FailedOver(message))
        yield from disconnect(state, agent, message, now)
    if agent is not None and agent.state is AgentState.UNREACHABLE:
        kind = "returned"
    yield from _end_lost_runs(state, agent, event)
    if agent is None:
        agent = Agent(event.agent_id or AgentId(state.next_id("A")), "")
        state.agents[agent.agent_id] = agent
    before = agent.record()
    _connect(state, agent, event, now)
    if agent.record() != before:
        yield Save(agent.record())
    heartbeat_s = state.settings.agent_heartbeat_s(len(state.agents))
    yield Send(event.session, Registered(agent.agent_id, heartbeat_s, state.master_id))
    yield from restore_holds(state, agent, event, now)
    yield from sync(state, agent, event, now)
    yield Happened(AgentJoined(agent.agent_id, agent.hostname, kind, len(agent.tasks)))
    if agent.problems:
        text = problems_text(agent.problems)
        yield Happened(AgentUnhealthy(agent.agent_id, agent.hostname, text))


def _end_lost_runs(state: State, agent: Agent | None, event: Register) -> Iterator[Effect]:
    """Note which runs do not go on at an agent that was given up and is back."""
    if event.agent_id and (agent is None or agent.state is AgentState.UNREACHABLE):
        listed = {(report.framework_id, report.task.task_id) for report in event.tasks}
        yield from end_unlisted_runs(state, event.agent_id, listed)


def _refuse(event: Register, error: CroupierError) -> Iterator[Effect]:
    """Refuse an agent whose id and name may be of any length."""
    yield Close(event.session, error)
    agent_id = AgentId(event.agent_id[:MAX_ID_BYTES])
    yield Happened(AgentRefused(agent_id, event.hostname[:MAX_ID_BYTES], str(error)))


def on_report(
    state: State, event: AgentReported | TasksReturned | AgentHealth | ExecutorSaid, now: float
) -> Iterator[Effect]:
    """Apply a report of a registered agent."""
    agent = state.peers.get(event.session)
    if not isinstance(agent, Agent):
        yield Close(event.session, ProtocolViolation("the first report must be REGISTER"))
        return
    on_received(state, agent, now)
    match event:
        case AgentReported():
            yield from _on_statuses(state, agent, event, now)
        case AgentHealth():
            yield from _on_health(state, agent, event, now)
        case TasksReturned(_, returned):
            # Each goes to the front of its queue.
            for key in reversed(returned):
                if key in agent.line:
                    yield from on_line.give_back(state, agent.line[key], now)
        case ExecutorSaid(_, message):
            yield from on_said(state, agent, message, now)


def _on_statuses(state: State, agent: Agent, event: AgentReported, now: float) -> Iterator[Effect]:
    for status in event.statuses:
        is_own = status.agent_id == agent.agent_id and status.sequence > 0
        if is_own and status.state in REPORTABLE and on_line.may_succeed(agent, status):
            yield from on_line.on_update(state, agent, status, now)
            yield from end_earlier_run(state, status)
        else:
            message = f"an update of {status.task_id[:255]!r} is not for this agent to make"
            yield Close(event.session, ProtocolViolation(message))
            yield from disconnect(state, agent, message, now)
            return
    yield from on_line.line_up(
        state, agent, dict.fromkeys(map(agent.place_of, event.statuses)), now
    )


def on_agent_stopped(state: State, event: AgentStopped, now: float) -> Iterator[Effect]:
    """Remove an agent that has ended its tasks and leaves for good."""
    agent = state.peers.get(event.session)
    if not isinstance(agent, Agent):
        return
    yield from disconnect(state, agent, "it stopped", now)
    yield Close(event.session, None)
    message, losers = "its agent has stopped", concerned(agent)
    yield from on_line.give_back_all(state, agent, now)
    yield from remove(state, agent, TaskState.GONE, Reason.AGENT_REMOVED, message, now)
    yield Save(ForgetAgent(agent.agent_id))
    yield Happened(AgentLeft(agent.agent_id, agent.hostname, "stopped", event.message))
    yield from announce(state, agent, "the agent has stopped", losers)


def remove(
    state: State, agent: Agent, new: TaskState, reason: Reason, message: str, now: float
) -> Iterator[Effect]:
    """Remove a disconnected agent; its tasks end with status `new`."""
    _lose(state, agent, now)
    for task in causes_first(agent.tasks.values()):
        yield from end_run(state, task, new, reason, message, now)
    for hold in list(agent.holds.values()):
        yield from end_hold(state, hold, "agent_gone", message, now)
    agent.move(AgentState.GONE)
    del state.agents[agent.agent_id]
    state.unreachable.pop(agent.agent_id, None)
    state.deadlines.cancel(AgentTimeout(agent.agent_id))


def disconnect(state: State, agent: Agent, message: str, now: float) -> Iterator[Effect]:
    """End an agent's session and rescind its offers; its tasks count as running."""
    assert agent.session is not None
    del state.peers[agent.session]
    state.deadlines.cancel(SessionSilence(agent.session))
    agent.move(AgentState.DISCONNECTED)
    yield from stop_offering(state, agent, "its agent has disconnected", now)
    until = agent.last_received + state.settings.agent_timeout_s
    state.deadlines.set(AgentTimeout(agent.agent_id), max(until, now))
    yield Happened(AgentLeft(agent.agent_id, agent.hostname, "disconnected", message))


def on_received(state: State, agent: Agent, now: float) -> None:
    """Note a message from an agent; it is no longer suspect."""
    agent.last_received = now
    if agent.state is AgentState.SUSPECT:
        agent.move(AgentState.CONNECTED)
        state.allocator.activate_agent(agent.agent_id, agent.is_offered)


def suspect(state: State, agent: Agent, now: float) -> Iterator[Effect]:
    """Suspect a silent agent: it is not offered until a message arrives."""
    agent.move(AgentState.SUSPECT)
    message = f"nothing was heard of the agent for {now - agent.last_received:.0f} s"
    yield from stop_offering(state, agent, message, now)
    yield Happened(AgentLeft(agent.agent_id, agent.hostname, "suspected", message))


def stop_offering(state: State, agent: Agent, message: str, now: float) -> Iterator[Effect]:
    """Stop offering an agent and rescind its offers."""
    if agent.in_pool:
        state.allocator.activate_agent(agent.agent_id, False)
    for offer in list(agent.offers.values()):
        yield from rescind(state, offer, message, now)
    yield from on_line.recall_all(state, agent)


def withhold(state: State, agent: Agent, message: str, now: float) -> Iterator[Effect]:
    """Stop offering an agent and drop its earmark."""
    yield from stop_offering(state, agent, message, now)
    if agent.in_pool:
        state.allocator.drop_earmark(agent.agent_id)


def on_agent_due(state: State, agent: Agent, now: float) -> Iterator[Effect]:
    """Move an agent to UNREACHABLE after its timeout, unless too many were moved recently.

    A master that receives nothing from many agents may itself be cut off.
    """
    rules = state.settings
    while state.removals and state.removals[0] + rules.removal_window_s <= now:
        state.removals.popleft()
    if len(state.removals) >= rules.removals:
        state.deadlines.set(
            AgentTimeout(agent.agent_id), state.removals[0] + rules.removal_window_s
        )
        return
    state.removals.append(now)
    message = f"nothing was heard of the agent for {now - agent.last_received:.0f} s"
    yield from give_up(state, agent, message, now)


def give_up(state: State, agent: Agent, message: str, now: float) -> Iterator[Effect]:
    """Move a disconnected agent and its tasks to UNREACHABLE; its resources do not count."""
    losers = concerned(agent)
    _lose(state, agent, now)
    agent.move(AgentState.UNREACHABLE)
    state.deadlines.cancel(AgentTimeout(agent.agent_id))
    yield Save(agent.record())
    lost = (TaskState.UNREACHABLE, Reason.AGENT_DISCONNECTED, message)
    for task in causes_first(agent.tasks.values()):
        if state.frameworks[task.framework_id].is_removed:
            yield from drop(state, task)
            forget_removed(state, task.framework_id)
        elif task.state.is_terminal or starts_again(state, task, TaskState.UNREACHABLE):
            yield from end_run(state, task, *lost, now)
        else:
            yield from set_status(state, task, *lost)
    yield Happened(AgentLeft(agent.agent_id, agent.hostname, "unreachable", message))
    yield from announce(state, agent, message, losers)
    state.unreachable[agent.agent_id] = None
    for forgotten in state.forget_unreachable():
        yield Save(ForgetAgent(forgotten))


def _connect(state: State, agent: Agent, event: Register, now: float) -> None:
    if agent.in_pool:
        _leave_pool(state, agent)
    for hold in agent.holds.values():
        hold_charges.lose_hold(state, hold)
    agent.introduce(
        event.hostname,
        event.attributes,
        event.http_address,
        event.features,
        registration.inventory_of(event),
    )
    agent.last_received = agent.connected_at = now
    agent.takes_secrets = event.takes_secrets
    agent.default_user = event.default_user
    agent.takes_exec, agent.lines_up = event.takes_exec, event.lines_up
    agent.boot_id, agent.sent_ms = event.boot_id, event.sent_ms
    agent.is_authenticated |= state.access.is_on
    agent.move(AgentState.CONNECTED)
    agent.session, agent.problems = event.session, event.problems
    state.unreachable.pop(agent.agent_id, None)
    state.peers[event.session] = agent
    state.deadlines.cancel(AgentTimeout(agent.agent_id))
    suspect_s = state.settings.suspect_s(len(state.agents))
    state.deadlines.set(SessionSilence(event.session), now + suspect_s)
    agent.total = event.total
    facts = (agent.hostname, agent.attributes, agent.features, agent.inventory)
    state.allocator.add_agent(agent.agent_id, agent.total, *facts)
    if not agent.is_offered:
        state.allocator.activate_agent(agent.agent_id, False)


def concerned(agent: Agent) -> frozenset[FrameworkId]:
    """Return the frameworks that have tasks on the agent."""
    return frozenset(framework_id for framework_id, _ in agent.tasks)


def announce(
    state: State, agent: Agent, message: str, losers: Container[FrameworkId]
) -> Iterator[Effect]:
    """Report the loss of an agent to `losers`, and to all frameworks that may view the agent."""
    failed = AgentFailed(agent.agent_id, agent.hostname, message)
    for framework in state.frameworks.values():
        if framework.session is None:
            continue
        permissions = state.permissions(framework.principal)
        if framework.framework_id in losers or may_view_agent(permissions, agent.agent_id):
            yield Send(framework.session, failed)


def _lose(state: State, agent: Agent, now: float) -> None:
    """Take a lost agent from the pool. It may have started lined-up tasks: they count as placed."""
    _leave_pool(state, agent)
    for task in list(agent.line.values()):
        task_moves.place_lined(state, task, now)


def _leave_pool(state: State, agent: Agent) -> None:
    """Release the resources of an agent, of its tasks and of its holds."""
    task_moves.release_tasks(state, agent.agent_id, agent.tasks.values())
    for hold in agent.holds.values():
        hold_charges.lose_hold(state, hold)
    if agent.in_pool:
        state.allocator.remove_agent(agent.agent_id)
    state.allocator.charges.remove_absent(agent.agent_id)


def _on_health(state: State, agent: Agent, event: AgentHealth, now: float) -> Iterator[Effect]:
    """Apply an agent's problems, and end the launches that it refused."""
    if event.problems != agent.problems:
        was_healthy = not agent.problems
        agent.problems = event.problems
        if agent.problems:
            text = problems_text(agent.problems)
            yield Happened(AgentUnhealthy(agent.agent_id, agent.hostname, text))
            if was_healthy:
                yield from withhold(state, agent, "its agent cannot launch tasks now", now)
        else:
            yield Happened(AgentHealthy(agent.agent_id, agent.hostname))
            state.allocator.activate_agent(agent.agent_id, agent.is_offered)
    for refused in event.refused:
        yield from _drop_launch(state, agent, refused, Reason.CONTAINER_LAUNCH_FAILED, now)


def on_launch_unsent(state: State, event: LaunchUnsent, now: float) -> Iterator[Effect]:
    """End a task whose launch could not be sent."""
    agent = state.peers.get(event.session)
    if isinstance(agent, Agent):
        yield from _drop_launch(state, agent, event, Reason.TASK_INVALID, now)


def _drop_launch(
    state: State, agent: Agent, launch: LaunchUnsent | RefusedLaunch, reason: Reason, now: float
) -> Iterator[Effect]:
    """End a task that its agent has no record of, and its group, which is launched whole."""
    task = agent.tasks.get((launch.framework_id, launch.task_id))
    if task is None:
        return
    for each in state.frameworks[launch.framework_id].unit_of(task):
        if not each.state.is_terminal and not each.has_updates:
            yield from end_run(state, each, TaskState.DROPPED, reason, launch.message, now)
