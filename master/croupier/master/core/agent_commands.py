"""Operator commands for agents: drain, deactivate, reactivate, declare gone.

An action is durable before it is answered, and holds until another action ends it. It applies to a
disconnected agent as soon as the agent returns. A repeated action changes nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import ClassVar

from croupier.master.core.agent_status import (
    AgentStatus,
    agent_status,
    drain_kills,
    may_be_withdrawn,
)
from croupier.master.core.agents import Agent, AgentState
from croupier.master.core.authorisation import finds_agent, require
from croupier.master.core.effects import Close, Effect, Happened, Save
from croupier.master.core.events import OperatorCommand
from croupier.master.core.facts import AgentDrained, AgentLeft, AgentOperated
from croupier.master.core.on_agent import announce, concerned, disconnect, remove, withhold
from croupier.master.core.on_task import kill
from croupier.master.core.records import AgentRecord, DrainRequest, ForgetAgent
from croupier.master.core.state import State
from croupier.master.core.token_commands import forget_tokens
from croupier.model.access import Action, Permissions, agent_object
from croupier.model.errors import Conflict, InvalidRequest, NotFound, Removed
from croupier.model.ids import AgentId, short_id
from croupier.model.principal import ANONYMOUS, Principal
from croupier.model.task import Reason, TaskState
from croupier.model.task_checks import check_grace

# The error names at most this many of the agents that share a hostname.
MAX_NAMED = 10


@dataclass(frozen=True, slots=True)
class Drain:
    """End the agent's tasks and withhold it from allocation.

    `grace_ms`: the longest that a task may take to end by itself; None: its own grace.
    """

    name: ClassVar = "drain"
    grace_ms: int | None = None

    def apply(self, state: State, agent: Agent, now: float) -> Iterator[Effect]:
        """Drain the agent, or change the grace; raises InvalidRequest if that is out of range."""
        if self.grace_ms is not None:
            check_grace(self.grace_ms)
        drain, is_new = DrainRequest(self.grace_ms), agent.drain is None
        if agent.drain != drain:
            agent.drain = drain
            yield Save(agent.record())
        yield from withhold(state, agent, "its agent is being drained", now)
        for task, grace_ms, reason in drain_kills(agent):
            yield from kill(state, task, grace_ms, reason, now)
        if is_new and agent.is_empty:
            yield Happened(AgentDrained(agent.agent_id, agent.hostname))


@dataclass(frozen=True, slots=True)
class Deactivate:
    """Withhold the agent from allocation; its tasks run on."""

    name: ClassVar = "deactivate"

    def apply(self, state: State, agent: Agent, now: float) -> Iterator[Effect]:
        """Deactivate the agent."""
        if not agent.deactivated:
            agent.deactivated = True
            yield Save(agent.record())
        yield from withhold(state, agent, "its agent was deactivated", now)


@dataclass(frozen=True, slots=True)
class Reactivate:
    """Offer the agent again, and end its drain."""

    name: ClassVar = "reactivate"

    def apply(self, state: State, agent: Agent, _now: float) -> Iterator[Effect]:
        """Reactivate the agent; kills that it has not received are withdrawn."""
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
            state.allocator.activate_agent(agent.agent_id, agent.is_offered)


@dataclass(frozen=True, slots=True)
class MarkGone:
    """Declare the agent and its tasks dead; it never returns under its id."""

    name: ClassVar = "gone"

    def apply(self, state: State, agent: Agent, now: float) -> Iterator[Effect]:
        """Remove the agent for good."""
        if agent.agent_id in state.gone:
            return
        message, losers = "an operator has declared its agent gone", concerned(agent)
        if agent.session is not None:
            yield Close(agent.session, Removed(f"agent {agent.agent_id} was declared gone"))
            yield from disconnect(state, agent, "it was declared gone", now)
        agent.drain = None
        reason = Reason.GONE_BY_OPERATOR
        yield from remove(state, agent, TaskState.GONE_BY_OPERATOR, reason, message, now)
        yield Save(AgentRecord(agent.agent_id, agent.hostname, gone=True))
        token = state.tokens.of_agent(agent.agent_id)
        if token is not None:
            yield from forget_tokens(state, [token.token_id])
        forgotten = state.remember_gone(agent.agent_id)
        if forgotten is not None:
            yield Save(ForgetAgent(forgotten))
        message = "an operator has declared the agent gone"
        yield Happened(AgentLeft(agent.agent_id, agent.hostname, "gone", message))
        yield from announce(state, agent, message, losers)


AgentAction = Drain | Deactivate | Reactivate | MarkGone


@dataclass(frozen=True, slots=True)
class OperateAgent(OperatorCommand[AgentStatus]):
    """Apply an action to an agent.

    `agent`: its id, or its hostname if no other agent has that.
    """

    agent: str
    action: AgentAction
    operator: str = ""
    caller: Principal = ANONYMOUS

    def execute(self, state: State, now: float) -> Generator[Effect, None, AgentStatus]:
        """Apply the action and return the agent's new status.

        Raises:
            NotFound: if there is no such agent, or the caller may not view it.
            PermissionDenied: if the caller may not operate it.
            Conflict, InvalidRequest: as by the action, or if the name is ambiguous.
        """
        permissions = state.permissions(self.caller)
        is_gone = self.agent in state.gone and AgentId(self.agent) not in state.agents
        may_operate = finds_agent(permissions, Action.OPERATE_AGENTS, AgentId(self.agent))
        if isinstance(self.action, MarkGone) and is_gone and may_operate:
            agent = Agent(AgentId(self.agent), "", AgentState.GONE)
        else:
            agent = find_agent(state, permissions, self.agent)
        require(permissions, Action.OPERATE_AGENTS, agent_object(agent.agent_id))
        before = (agent.record(), agent.agent_id in state.gone)
        yield from self.action.apply(state, agent, now)
        if (agent.record(), agent.agent_id in state.gone) != before:
            name = self.action.name
            yield Happened(AgentOperated(agent.agent_id, agent.hostname, name, self.operator))
        return agent_status(state, agent, now)


def find_agent(state: State, permissions: Permissions, named: str) -> Agent:
    """Return the agent of this id or, if exactly one has it, of this hostname or short id.

    Raises:
        Conflict: if it was declared gone.
        NotFound: if there is none, or the caller may not view it.
        InvalidRequest: if there are several.
    """

    def finds(agent_id: AgentId) -> bool:
        return finds_agent(permissions, Action.OPERATE_AGENTS, agent_id)

    agent = state.agents.get(AgentId(named))
    if agent is not None and finds(agent.agent_id):
        return agent
    if named in state.gone and finds(AgentId(named)):
        raise Conflict(f"agent {named} was declared gone, for good")
    same = [each for each in state.agents.values() if each.hostname == named]
    same = same or [a for a in state.agents.values() if short_id(a.agent_id) == named]
    alike = [each for each in same if finds(each.agent_id)]
    if not alike or not named:
        raise NotFound(f"no agent has the id or hostname {named!r}")
    if len(alike) > 1:
        ids = [f"{each.agent_id} ({each.state_name})" for each in alike[:MAX_NAMED]]
        more = f" and {len(alike) - MAX_NAMED} more" if len(alike) > MAX_NAMED else ""
        raise InvalidRequest(f"several agents have this hostname: {', '.join(ids)}{more}")
    return alike[0]
