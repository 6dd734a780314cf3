"""What operators see of the state, as messages. Nothing in them is shared with the state."""

from __future__ import annotations

from itertools import chain

from croupier.master.core.agents import Agent
from croupier.master.core.frameworks import Framework
from croupier.master.core.messages import Offered
from croupier.master.core.state import State
from croupier.master.core.tasks import Task, TaskRecord
from croupier.master.wire.to_framework import agent_to_wire, offer_to_wire
from croupier.model.ids import FrameworkId, Role
from croupier.model.resources import Resources, total_of
from croupier.rpc.resources_wire import resources_to_wire
from croupier.rpc.task_wire import demand_to_wire, status_to_wire, task_to_wire
from croupier.v1 import framework_pb2
from croupier.v1 import operator_pb2 as pb

PPM = 1_000_000


def view_master(state: State) -> pb.GetMasterResponse:
    """The cluster in one message."""
    pooled = [agent for agent in state.agents.values() if agent.in_pool]
    return pb.GetMasterResponse(
        master_id=state.master_id,
        total=resources_to_wire(total_of(agent.total for agent in pooled)),
        used=resources_to_wire(total_of(state.used(agent) for agent in pooled)),
        offered=resources_to_wire(total_of(offer.resources for offer in state.offers.values())),
        allocation_passes=state.allocator.passes,
    )


def view_agents(state: State) -> pb.ListAgentsResponse:
    """All agents, in the order in which they came."""
    return pb.ListAgentsResponse(agents=[_agent(state, agent) for agent in state.agents.values()])


def view_frameworks(state: State) -> pb.ListFrameworksResponse:
    """All frameworks, in the order in which they came."""
    return pb.ListFrameworksResponse(
        frameworks=[_framework(state, framework) for framework in state.frameworks.values()]
    )


def view_roles(state: State) -> pb.ListRolesResponse:
    """All roles, by name."""
    weights = state.allocator.role_weights()
    return pb.ListRolesResponse(
        roles=[_role(state, role, weights[role]) for role in sorted(weights)]
    )


def view_offers(state: State, now: float) -> pb.ListOffersResponse:
    """All outstanding offers, oldest first, each with what is left of its lease."""
    wire = pb.ListOffersResponse()
    for offer in state.offers.values():
        offered = Offered(
            offer.offer_id,
            state.agents[offer.agent_id].describe(),
            state.frameworks[offer.framework_id].role,
            offer.resources,
            max(offer.expires_at - now, 0.0),
        )
        wire.offers.add(offer=offer_to_wire(offered), framework_id=offer.framework_id)
    return wire


def select_tasks(state: State, framework_id: FrameworkId) -> list[TaskRecord]:
    """Tasks that have ended lately, and then those that have not, as they stand now.

    What is returned never changes, so it can be put on the wire a part at a time.
    """
    frameworks = [
        framework
        for framework in state.frameworks.values()
        if framework_id in ("", framework.framework_id)
    ]
    live = chain.from_iterable(framework.tasks.values() for framework in frameworks)
    ended = (task for task in state.ended if framework_id in ("", task.framework_id))
    return [*ended, *(task.record() for task in live)]


def view_task(task: Task | TaskRecord) -> pb.TaskView:
    """One task."""
    return pb.TaskView(
        framework_id=task.framework_id,
        agent_id=task.status.agent_id,
        role=task.role,
        task=task_to_wire(task.info),
        status=status_to_wire(task.status),
    )


def view_reasons(state: State, framework_id: FrameworkId) -> pb.ExplainResponse:
    """Why the framework is not dealt more."""
    wire = pb.ExplainResponse()
    for passed in state.allocator.explain(framework_id):
        wire.reasons.add(cause=passed.cause.value, agents=passed.agents, detail=passed.detail)
    return wire


def _agent(state: State, agent: Agent) -> pb.AgentView:
    return pb.AgentView(
        agent=agent_to_wire(agent.describe()),
        state=agent.state.value,
        total=resources_to_wire(agent.total),
        used=resources_to_wire(state.used(agent)),
        offered=resources_to_wire(total_of(offer.resources for offer in agent.offers.values())),
        tasks=sum(not task.state.is_terminal for task in agent.tasks.values()),
    )


def _framework(state: State, framework: Framework) -> pb.FrameworkView:
    share, scale = state.allocator.share(framework.framework_id)
    demand = state.allocator.demand(framework.framework_id)
    return pb.FrameworkView(
        framework=framework_pb2.FrameworkInfo(
            framework_id=framework.framework_id,
            name=framework.name,
            roles=[framework.role],
            failover_timeout_ms=round(framework.failover_timeout_s * 1000),
            hostname=framework.hostname,
            webui_url=framework.webui_url,
        ),
        state=framework.state.value,
        suppressed=state.allocator.is_suppressed(framework.framework_id),
        demands=[demand_to_wire(demand)] if demand else [],
        used=resources_to_wire(_used(framework)),
        offered=resources_to_wire(_offered(framework)),
        share_ppm=share * PPM // scale,
        tasks=sum(not task.state.is_terminal for task in framework.tasks.values()),
        offers=len(framework.offers),
    )


def _role(state: State, role: Role, weight: int) -> pb.RoleView:
    members = [each for each in state.frameworks.values() if each.role == role]
    share, scale = state.allocator.role_share(role)
    return pb.RoleView(
        role=role,
        settings=pb.RoleSettings(weight_milli=weight),
        used=resources_to_wire(total_of(_used(each) for each in members)),
        offered=resources_to_wire(total_of(_offered(each) for each in members)),
        share_ppm=share * PPM // scale,
        frameworks=len(members),
        tasks=sum(not task.state.is_terminal for each in members for task in each.tasks.values()),
    )


def _used(framework: Framework) -> Resources:
    charged = (task for task in framework.tasks.values() if task.is_charged)
    return total_of(task.info.resources for task in charged)


def _offered(framework: Framework) -> Resources:
    return total_of(offer.resources for offer in framework.offers.values())
