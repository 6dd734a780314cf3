"""Agents report that they cannot launch tasks, or that they can again.

Rule: an agent with a problem is not offered; its tasks run on and stay charged. It has no record of
launches that it refused, so the master records their terminal status.
"""

from __future__ import annotations

from collections.abc import Iterator

from croupier.master.core.agents import Agent
from croupier.master.core.effects import Close, Effect, Happened
from croupier.master.core.events import AgentHealth, LaunchUnsent, RefusedLaunch
from croupier.master.core.facts import AgentHealthy, AgentUnhealthy
from croupier.master.core.on_agent import on_received, withhold
from croupier.master.core.on_task import end
from croupier.master.core.state import State
from croupier.model.errors import ProtocolViolation
from croupier.model.health import problems_text
from croupier.model.task import Reason, TaskState


def on_agent_health(state: State, event: AgentHealth, now: float) -> Iterator[Effect]:
    """Apply an agent's problems, and end the launches that it refused."""
    agent = state.peers.get(event.session)
    if not isinstance(agent, Agent):
        yield Close(event.session, ProtocolViolation("the first report must be REGISTER"))
        return
    on_received(state, agent, now)
    if event.problems != agent.problems:
        was_healthy = not agent.problems
        agent.report_problems(event.problems)
        if agent.problems:
            text = problems_text(agent.problems)
            yield Happened(AgentUnhealthy(agent.agent_id, agent.hostname, text))
            if was_healthy:
                yield from withhold(state, agent, "its agent cannot launch tasks now", now)
        else:
            yield Happened(AgentHealthy(agent.agent_id, agent.hostname))
            state.allocator.activate_agent(agent.agent_id, agent.is_offered)
    for refused in event.refused:
        yield from _on_refused(state, agent, refused, now)


def on_launch_unsent(state: State, event: LaunchUnsent, now: float) -> Iterator[Effect]:
    """End a task whose launch could not be sent; its agent has no record of it."""
    agent = state.peers.get(event.session)
    task = None
    if isinstance(agent, Agent):
        task = agent.tasks.get((event.framework_id, event.task_id))
    if task is not None and not task.state.is_terminal and not task.sequence:
        yield from end(state, task, TaskState.DROPPED, Reason.TASK_INVALID, event.message, now)


def _on_refused(state: State, agent: Agent, refused: RefusedLaunch, now: float) -> Iterator[Effect]:
    task = agent.tasks.get((refused.framework_id, refused.task_id))
    if task is None or task.state.is_terminal or task.sequence:
        return
    reason = Reason.CONTAINER_LAUNCH_FAILED
    yield from end(state, task, TaskState.DROPPED, reason, refused.message, now)
