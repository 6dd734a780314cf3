"""The immutable status of an agent, for operators."""

from __future__ import annotations

from dataclasses import dataclass

from croupier.master.core.agents import Agent
from croupier.master.core.deadlines import AgentTimeout
from croupier.master.core.drains import DrainProgress, drain_progress
from croupier.master.core.messages import AgentDescription
from croupier.master.core.state import State
from croupier.model.access import AGENT_USER
from croupier.model.health import Problem
from croupier.model.resources import Resources, total_of


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """An agent at one moment.

    Attributes:
        tasks: the number of tasks that have not ended.
        timeout_in_s: seconds until a disconnected agent becomes unreachable; None if it will not.
        drain: None unless the agent is being drained.
        default_user: the account of tasks that name no user.
        connected_at: when its session began, in monotonic seconds; None if it has none.
    """

    agent: AgentDescription
    state: str
    total: Resources
    used: Resources
    offered: Resources
    tasks: int
    deactivated: bool
    problems: tuple[Problem, ...]
    timeout_in_s: float | None
    drain: DrainProgress | None
    default_user: str = AGENT_USER
    connected_at: float | None = None


def agent_status(state: State, agent: Agent, now: float) -> AgentStatus:
    """Return the status of an agent, which may just have been declared gone. O(its tasks)."""
    due = state.deadlines.at(AgentTimeout(agent.agent_id))
    return AgentStatus(
        agent=agent.describe(),
        state=agent.state.name,
        total=agent.total,
        used=state.used(agent),
        offered=total_of(offer.resources for offer in agent.offers.values()),
        tasks=sum(not task.state.is_terminal for task in agent.tasks.values()),
        deactivated=agent.deactivated,
        problems=agent.problems,
        timeout_in_s=None if due is None else max(0.0, due - now),
        drain=drain_progress(state, agent, now),
        default_user=agent.default_user,
        connected_at=None if agent.session is None else agent.connected_at,
    )
