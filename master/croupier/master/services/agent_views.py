"""Views of agents for operators, in protobuf."""

from __future__ import annotations

from croupier.master.allocator import Cause, PassedOver
from croupier.master.core.agent_status import AgentStatus, DrainProgress
from croupier.master.core.agents import Agent, Connected
from croupier.master.core.state import State
from croupier.master.services.visibility import Visibility
from croupier.master.services.wall_time import WallTime
from croupier.master.wire.to_framework import agent_to_wire
from croupier.model.health import problems_text
from croupier.model.ids import Role
from croupier.v1 import operator_pb2 as pb
from croupier.v1.agent_pb2 import HealthProblem
from croupier.wire.resources import resources_to_wire


def view_agent(
    status: AgentStatus, visible: Visibility | None = None, wall: WallTime | None = None
) -> pb.AgentView:
    """Convert one agent; tasks that block its drain only if they are `visible`."""
    wire = pb.AgentView(
        agent=agent_to_wire(status.agent),
        state=status.state,
        total=resources_to_wire(status.total),
        used=resources_to_wire(status.used),
        offered=resources_to_wire(status.offered),
        tasks=status.tasks,
        deactivated=status.deactivated,
        problems=(HealthProblem(part=p.part, message=p.message) for p in status.problems),
        default_user=status.default_user,
    )
    if wall is not None and status.connected_at is not None:
        wire.connected_since_ms = wall.of(status.connected_at)
    if status.timeout_in_s is not None:
        wire.decided_in_ms = _ms(status.timeout_in_s)
    if status.drain is not None:
        wire.drain.CopyFrom(_drain(status.drain, visible))
    return wire


def withheld_reason(agent: Agent) -> tuple[Cause, str] | None:
    """Return why the agent is withheld from allocation; None if it is not."""
    if agent.drain is not None:
        return Cause.DRAINING, f"agent {agent.agent_id} is being drained"
    if agent.deactivated:
        return Cause.DEACTIVATED, f"an operator has deactivated agent {agent.agent_id}"
    if agent.problems:
        return Cause.UNHEALTHY, f"agent {agent.agent_id}: {problems_text(agent.problems)}"
    if not isinstance(agent.state, Connected):
        return Cause.AGENT_AWAY, f"agent {agent.agent_id} is {agent.state.name}"
    return None


def withheld_reasons(state: State, role: Role) -> list[PassedOver]:
    """Return why operators or problems withhold agents from all roles. O(agents)."""
    found: dict[Cause, tuple[int, str, str]] = {}
    for agent in state.agents.values():
        why = withheld_reason(agent)
        if why is not None and why[0] is not Cause.AGENT_AWAY:
            cause, detail = why
            number, _, _ = found.get(cause, (0, "", ""))
            found[cause] = (number + 1, detail, agent.agent_id)
    return [
        PassedOver(cause, number, detail, role, about)
        for cause, (number, detail, about) in found.items()
    ]


def _drain(drain: DrainProgress, visible: Visibility | None) -> pb.Drain:
    wire = pb.Drain(done=drain.is_done, tasks_left=drain.tasks_left)
    if drain.grace_ms is not None:
        wire.grace_ms = drain.grace_ms
    if drain.estimate_s is not None:
        wire.estimate_ms = _ms(drain.estimate_s)
    for each in drain.blockers:
        if visible is not None and not visible.has_framework_id(each.framework_id):
            continue
        wire.blockers.add(framework_id=each.framework_id, task_id=each.task_id, reason=each.reason)
    return wire


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
