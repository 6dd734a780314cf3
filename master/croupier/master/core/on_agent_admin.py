"""What operators do with agents: drain, deactivate, reactivate, declare gone.

What they want is durable before they are answered, holds until they want otherwise, and is
done to an agent that is away as soon as it returns. To want it twice is to want it once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from croupier.master.core.actions import (
    AgentAction,
    Deactivate,
    Drain,
    MarkGone,
    Reactivate,
    action_name,
)
from croupier.master.core.agents import Agent
from croupier.master.core.drains import may_be_withdrawn, wanted_kill
from croupier.master.core.effects import Answer, Close, Effect, Happened, Save
from croupier.master.core.events import OperateAgent
from croupier.master.core.facts import AgentDrained, AgentLeft, AgentOperated
from croupier.master.core.on_agent import announce, disconnect, take_out, withhold
from croupier.master.core.on_task import kill
from croupier.master.core.records import AgentRecord, DrainRequest, ForgetAgent
from croupier.master.core.state import State
from croupier.model.errors import (
    Conflict,
    CroupierError,
    InvalidRequest,
    NotFound,
    Removed,
    shortened,
)
from croupier.model.ids import AgentId
from croupier.model.task import Reason, TaskState, check_grace

# Of the agents that share a hostname, so many are named.
MAX_NAMED = 10


def on_operate_agent(state: State, event: OperateAgent, now: float) -> Iterator[Effect]:
    """Do it, and answer with the agent; or with an error."""
    try:
        _check(event.action)
        agent = _find(state, event.agent, event.action)
    except CroupierError as refusal:
        yield Answer(event.request, shortened(refusal))
        return
    before = agent.record()
    was_gone = agent.agent_id in state.gone
    match event.action:
        case Drain():
            yield from _drain(state, agent, DrainRequest(event.action.grace_ms), now)
        case Deactivate():
            yield from _deactivate(state, agent, now)
        case Reactivate():
            yield from _reactivate(state, agent)
        case MarkGone():
            yield from _mark_gone(state, agent, now)
        case _:
            assert_never(event.action)
    is_gone = agent.agent_id in state.gone
    if is_gone != was_gone or agent.record() != before:
        name = action_name(event.action)
        yield Happened(AgentOperated(agent.agent_id, agent.hostname, name, event.operator))
    yield Answer(event.request, agent)


def _check(action: AgentAction) -> None:
    if isinstance(action, Drain) and action.grace_ms is not None:
        check_grace(action.grace_ms)


def _find(state: State, named: str, action: AgentAction) -> Agent:
    """The agent of this id or, if there is just one, of this hostname.

    Raises:
        Conflict: if it was declared gone.
        NotFound: if there is none.
        InvalidRequest: if there are several.
    """
    agent = state.agents.get(AgentId(named))
    if agent is not None:
        return agent
    if named in state.gone:
        if isinstance(action, MarkGone):
            return Agent(AgentId(named), "")
        raise Conflict(f"agent {named} was declared gone, for good")
    alike = [each for each in state.agents.values() if each.hostname == named]
    if not alike or not named:
        raise NotFound(f"no agent has the id or hostname {named!r}")
    if len(alike) > 1:
        ids = [f"{each.agent_id} ({each.state.value})" for each in alike[:MAX_NAMED]]
        more = f" and {len(alike) - MAX_NAMED} more" if len(alike) > MAX_NAMED else ""
        raise InvalidRequest(f"several agents have this hostname: {', '.join(ids)}{more}")
    return alike[0]


def _drain(state: State, agent: Agent, drain: DrainRequest, now: float) -> Iterator[Effect]:
    is_new = agent.drain is None
    if agent.drain != drain:
        agent.drain = drain
        yield Save(agent.record())
    yield from withhold(state, agent, "its agent is being drained", now)
    for task in list(agent.tasks.values()):
        if not task.state.is_terminal:
            wanted = wanted_kill(task, drain)
            if wanted is not None:
                yield from kill(state, task, *wanted, now)
    if is_new and agent.is_empty:
        yield Happened(AgentDrained(agent.agent_id, agent.hostname))


def _deactivate(state: State, agent: Agent, now: float) -> Iterator[Effect]:
    if not agent.deactivated:
        agent.deactivated = True
        yield Save(agent.record())
    yield from withhold(state, agent, "its agent was deactivated", now)


def _reactivate(state: State, agent: Agent) -> Iterator[Effect]:
    was_drained = agent.drain is not None
    if agent.deactivated or was_drained:
        agent.deactivated, agent.drain = False, None
        yield Save(agent.record())
    if was_drained:
        for task in agent.tasks.values():
            if not task.state.is_terminal and may_be_withdrawn(task):
                task.kill = None
                yield Save(task.record())
    if agent.in_pool:
        state.allocator.activate_agent(agent.agent_id, agent.is_dealt)


def _mark_gone(state: State, agent: Agent, now: float) -> Iterator[Effect]:
    if agent.agent_id in state.gone:
        return
    message = "an operator has declared its agent gone"
    if agent.session is not None:
        yield Close(agent.session, Removed(f"agent {agent.agent_id} was declared gone"))
        yield from disconnect(state, agent, "it was declared gone", now)
    agent.drain = None
    reason = Reason.GONE_BY_OPERATOR
    yield from take_out(state, agent, TaskState.GONE_BY_OPERATOR, reason, message, now)
    yield Save(AgentRecord(agent.agent_id, agent.hostname, gone=True))
    forgotten = state.spend_agent_id(agent.agent_id)
    if forgotten is not None:
        yield Save(ForgetAgent(forgotten))
    message = "an operator has declared the agent gone"
    yield Happened(AgentLeft(agent.agent_id, agent.hostname, "gone", message))
    yield from announce(state, agent, message)
