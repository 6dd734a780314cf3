"""What operators see of agents, as messages. Nothing in them is shared with the state."""

from __future__ import annotations

from croupier.master.allocator import Cause, PassedOver
from croupier.master.core.agents import Agent, AgentState
from croupier.master.core.deadlines import AgentTimeout
from croupier.master.core.drains import Progress, progress
from croupier.master.core.state import State
from croupier.master.wire.to_framework import agent_to_wire
from croupier.model.health import problems_text
from croupier.model.ids import Role
from croupier.model.resources import total_of
from croupier.v1 import operator_pb2 as pb
from croupier.v1.agent_pb2 import HealthProblem
from croupier.wire.resources import resources_to_wire

# Where an agent stands that was declared gone; all other words are those of `AgentState`.
GONE = "gone"


def view_agent(state: State, agent: Agent, now: float) -> pb.AgentView:
    """One agent, be it one that has just been declared gone."""
    is_known = state.agents.get(agent.agent_id) is agent
    wire = pb.AgentView(
        agent=agent_to_wire(agent.describe()),
        state=agent.state.value if is_known else GONE,
        total=resources_to_wire(agent.total),
        used=resources_to_wire(state.used(agent)),
        offered=resources_to_wire(total_of(offer.resources for offer in agent.offers.values())),
        tasks=sum(not task.state.is_terminal for task in agent.tasks.values()),
        deactivated=agent.deactivated,
        problems=(HealthProblem(part=p.part, message=p.message) for p in agent.problems),
    )
    at = state.deadlines.at(AgentTimeout(agent.agent_id))
    if is_known and at is not None:
        wire.decided_in_ms = _ms(at - now)
    drain = progress(state, agent, now)
    if drain is not None:
        wire.drain.CopyFrom(_drain(drain))
    return wire


def withheld(agent: Agent) -> tuple[Cause, str] | None:
    """Why nobody is dealt of the agent; None if it is dealt."""
    if agent.drain is not None:
        return Cause.DRAINING, f"agent {agent.agent_id} is being drained"
    if agent.deactivated:
        return Cause.DEACTIVATED, f"an operator has deactivated agent {agent.agent_id}"
    if agent.problems:
        return Cause.UNHEALTHY, f"agent {agent.agent_id}: {problems_text(agent.problems)}"
    if agent.state is not AgentState.CONNECTED:
        return Cause.AGENT_AWAY, f"agent {agent.agent_id} is {agent.state.value}"
    return None


def all_withheld(state: State, role: Role) -> list[PassedOver]:
    """Agents that operators or their own problems withhold from all roles. O(agents)."""
    found: dict[Cause, tuple[int, str, str]] = {}
    for agent in state.agents.values():
        why = withheld(agent)
        if why is not None and why[0] is not Cause.AGENT_AWAY:
            cause, detail = why
            number, _, _ = found.get(cause, (0, "", ""))
            found[cause] = (number + 1, detail, agent.agent_id)
    return [
        PassedOver(cause, number, detail, role, about)
        for cause, (number, detail, about) in found.items()
    ]


def _drain(drain: Progress) -> pb.Drain:
    wire = pb.Drain(done=drain.is_done, tasks_left=drain.tasks_left)
    if drain.grace_ms is not None:
        wire.grace_ms = drain.grace_ms
    if drain.estimate_s is not None:
        wire.estimate_ms = _ms(drain.estimate_s)
    for each in drain.blockers:
        wire.blockers.add(framework_id=each.framework_id, task_id=each.task_id, reason=each.reason)
    return wire


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
