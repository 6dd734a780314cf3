"""Views of the state for operators, in protobuf."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from croupier.master.allocator import Cause, PassedOver
from croupier.master.core.deadlines import FailoverTimeout
from croupier.master.core.frameworks import Framework
from croupier.master.core.messages import Offered
from croupier.master.core.offers import Offer
from croupier.master.core.role_commands import RolesMoved
from croupier.master.core.role_status import RoleStatus, count_tasks, in_tree_order, role_status
from croupier.master.core.state import State
from croupier.master.core.tasks import TaskSnapshot
from croupier.master.recovery import agents_missing, recovery_timeout_s
from croupier.master.services.agent_views import withheld_reason, withheld_reasons
from croupier.master.wire.to_framework import offer_to_wire
from croupier.model.errors import NotFound
from croupier.model.ids import AgentId, FrameworkId
from croupier.model.resources import Resources, total_of
from croupier.model.task import TaskInfo
from croupier.v1 import framework_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import resources_to_wire
from croupier.wire.roles import settings_to_wire
from croupier.wire.task import demand_to_wire, status_to_wire, task_to_wire

PPM = 1_000_000

_ABOUT_A_ROLE = (
    Cause.LIMIT,
    Cause.GUARANTEE,
    Cause.OUTRANKED,
    Cause.KEPT,
    Cause.EARMARKED,
)


def view_master(state: State, now: float) -> pb.GetMasterResponse:
    """Return the view of the cluster."""
    pooled = [agent for agent in state.agents.values() if agent.in_pool]
    return pb.GetMasterResponse(
        master_id=state.master_id,
        total=resources_to_wire(total_of(agent.total for agent in pooled)),
        used=resources_to_wire(total_of(state.used(agent) for agent in pooled)),
        offered=resources_to_wire(total_of(offer.resources for offer in state.offers.values())),
        allocation_passes=state.allocator.passes,
        epoch=state.epoch,
        agents_missing=agents_missing(state),
        decided_in_ms=max(0, round(recovery_timeout_s(state, now) * 1000)),
    )


def view_role(status: RoleStatus) -> pb.RoleView:
    """Return the view of a role and everything below it."""
    return pb.RoleView(
        role=status.role,
        settings=settings_to_wire(status.settings),
        used=resources_to_wire(status.used),
        offered=resources_to_wire(status.offered),
        share_ppm=_ppm(status.share),
        entitlement_ppm=_ppm(status.entitlement),
        frameworks=status.frameworks,
        tasks=status.tasks,
    )


def view_moved(moved: RolesMoved, *, dry_run: bool) -> pb.UpdateRolesResponse:
    """Return the effect of role changes, real or in a dry run."""
    wire = pb.UpdateRolesResponse(others=moved.omitted, dry_run=dry_run)
    for before, after in (*moved.named, *moved.others):
        wire.roles.add(before=view_role(before), after=view_role(after))
    return wire


def view_offer(state: State, offer: Offer, now: float) -> pb.OfferView:
    """Return the view of an offer with the rest of its lease."""
    offered = Offered(
        offer.offer_id,
        state.agents[offer.agent_id].describe(),
        offer.role,
        offer.resources,
        max(offer.expires_at - now, 0.0),
    )
    return pb.OfferView(offer=offer_to_wire(offered), framework_id=offer.framework_id)


def view_task(task: TaskSnapshot, *, with_command: bool = True) -> pb.TaskView:
    """Return the view of a task; `with_command` False leaves out its command and labels."""
    return pb.TaskView(
        framework_id=task.framework_id,
        agent_id=task.status.agent_id,
        role=task.role,
        task=task_to_wire(task.info) if with_command else _outline(task.info),
        status=status_to_wire(task.status),
    )


def view_reasons(
    state: State, framework_id: FrameworkId, agent_id: AgentId, now: float
) -> pb.ExplainResponse:
    """Explain why a framework gets no more offers, of any agent or of `agent_id`.

    Raises:
        NotFound: if there is no such framework or agent.
    """
    framework = state.frameworks.get(framework_id)
    if framework is None:
        raise NotFound(f"no framework {framework_id!r}")
    if agent_id and agent_id not in state.agents:
        raise NotFound(f"no agent {agent_id!r}")
    tasks = count_tasks(state)
    return pb.ExplainResponse(
        reasons=map(_reason, _reasons(state, framework, agent_id, now)),
        framework=view_framework(state, framework, now),
        policy=state.allocator.queries.policy,
        roles=[
            view_role(role_status(state, role, tasks[role]))
            for role in in_tree_order(state.allocator.queries.roles_of(framework_id))
        ],
    )


def _reasons(
    state: State, framework: Framework, agent_id: AgentId, now: float
) -> Iterable[PassedOver]:
    framework_id, roles = framework.framework_id, framework.roles
    if not agent_id:
        reasons = state.allocator.queries.explain(framework_id, None, now)
        return [
            *reasons,
            *withheld_reasons(state, roles[0]),
            *_preemption(state, reasons, framework, now),
        ]
    why = withheld_reason(state.agents[agent_id])
    if why is None:
        reasons = state.allocator.queries.explain(framework_id, agent_id, now)
        return [*reasons, *_preemption(state, reasons, framework, now)]
    cause, detail = why
    return [PassedOver(cause, 1, detail, role, agent_id) for role in roles]


def _preemption(
    state: State, reasons: Iterable[PassedOver], framework: Framework, now: float
) -> Iterable[PassedOver]:
    """Yield, for each waiting role of the framework, when the master preempts for it."""
    waiting = {passed.role for passed in reasons if passed.cause is not Cause.ELIGIBLE}
    for role in framework.roles:
        text = state.preemptor.describe(framework.framework_id, role, now)
        if text is not None and role in waiting:
            yield PassedOver(Cause.PREEMPTION, 0, text, role)


def _reason(passed: PassedOver) -> pb.PassedOver:
    wire = pb.PassedOver(
        cause=passed.cause.value, agents=passed.agents, detail=passed.detail, role=passed.role
    )
    if passed.cause in _ABOUT_A_ROLE and passed.about:
        wire.about_role = passed.about
    elif passed.about:
        wire.about_agent_id = passed.about
    return wire


def view_framework(state: State, framework: Framework, now: float) -> pb.FrameworkView:
    """Return the view of a framework."""
    framework_id, allocator = framework.framework_id, state.allocator
    removed_at = state.deadlines.at(FailoverTimeout(framework_id))
    removed_in_s = None if removed_at is None else max(0.0, removed_at - now)
    return pb.FrameworkView(
        framework=framework_pb2.FrameworkInfo(
            framework_id=framework_id,
            name=framework.name,
            roles=framework.roles,
            failover_timeout_ms=round(framework.failover_timeout_s * 1000),
            hostname=framework.hostname,
            webui_url=framework.webui_url,
        ),
        state=framework.state.name,
        suppressed=allocator.queries.is_suppressed(framework_id),
        suppressed_roles=allocator.queries.suppressed_roles(framework_id),
        demands=map(demand_to_wire, allocator.queries.demands(framework_id)),
        used=resources_to_wire(_used(framework)),
        offered=resources_to_wire(_offered(framework)),
        share_ppm=_ppm(allocator.queries.share(framework_id)),
        entitlement_ppm=_ppm(allocator.queries.entitlement(framework_id)),
        tasks=len(framework.tasks) - framework.ended,
        offers=len(framework.offers),
        removed_in_ms=None if removed_in_s is None else round(removed_in_s * 1000),
    )


def _outline(info: TaskInfo) -> task_pb2.TaskInfo:
    """Convert the task without its command and labels, which may be large."""
    wire = task_to_wire(info.outline())
    wire.ClearField("command")
    return wire


def _ppm(fraction: Fraction) -> int:
    return round(fraction * PPM)


def _used(framework: Framework) -> Resources:
    counted = (task for task in framework.tasks.values() if task.is_counted)
    return total_of(task.info.resources for task in counted)


def _offered(framework: Framework) -> Resources:
    return total_of(offer.resources for offer in framework.offers.values())
