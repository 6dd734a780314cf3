"""Views of the state for operators, in protobuf."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Final

from croupier.master.allocator import Cause, PassedOver
from croupier.master.allocator.past_use import PastUse
from croupier.master.allocator.queries import RoleStatus
from croupier.master.core.agent_status import AgentStatus, DrainProgress
from croupier.master.core.agents import Agent, AgentState
from croupier.master.core.budgets import BudgetStatus
from croupier.master.core.deadlines import FailoverTimeout
from croupier.master.core.frameworks import Framework
from croupier.master.core.hold_charges import idle_in_pool
from croupier.master.core.hold_commands import HoldStatus
from croupier.master.core.messages import Offered
from croupier.master.core.offers import Offer
from croupier.master.core.role_commands import RolesMoved
from croupier.master.core.state import State
from croupier.master.core.tasks import Task, TaskSnapshot
from croupier.master.leadership.recovery import agents_missing, recovery_timeout_s
from croupier.master.services.visibility import Visibility
from croupier.master.wire.to_framework import agent_to_wire, offer_to_wire
from croupier.model.clock import Clock
from croupier.model.health import problems_text
from croupier.model.ids import Role
from croupier.model.principal import ANONYMOUS, Principal
from croupier.model.resources import Resources, total_of
from croupier.model.task import TaskInfo, TaskState
from croupier.v1 import framework_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.agent_pb2 import HealthProblem
from croupier.wire.resources import resources_to_wire
from croupier.wire.roles import settings_to_wire
from croupier.wire.task import demand_to_wire, status_to_wire, task_to_wire

# Differences above this are a clock that was set, and no imprecision.
STEP_MS: Final = 1_000

PPM = 1_000_000


class WallTime:
    """Converts times of `clock`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._offset_ms = clock.wall_ms() - round(clock.now() * 1000)

    @property
    def now_ms(self) -> int:
        """The present, in milliseconds since the epoch."""
        return self.of(self.clock.now())

    def of(self, at: float) -> int:
        """Return a time in seconds on the monotonic clock as milliseconds since the epoch."""
        offset_ms = self.clock.wall_ms() - round(self.clock.now() * 1000)
        if abs(offset_ms - self._offset_ms) > STEP_MS:
            self._offset_ms = offset_ms
        return max(0, round(at * 1000) + self._offset_ms)

    def since_ms(self, task: Task | TaskSnapshot) -> int:
        """Return since when a task is in the cluster, in milliseconds since the epoch.

        This master knows when it got a task. If an earlier one got it, the start that its agent
        has reported is nearer to the truth than the time at which this master found it.
        """
        since_ms = self.of(task.since if task.submitted is None else task.submitted)
        is_found = task.submitted is None and task.placed is None
        return min(since_ms, task.started_ms) if is_found and task.started_ms else since_ms


def view_master(state: State, now: float, caller: Principal = ANONYMOUS) -> pb.GetMasterResponse:
    """Return the view of the cluster; only its name and epoch if the caller may not view it."""
    if not Visibility(state, caller).has_cluster:
        return pb.GetMasterResponse(master_id=state.master_id, epoch=state.epoch)
    pooled = [agent for agent in state.agents.values() if agent.in_pool]
    tasks = (task for agent in pooled for task in agent.tasks.values() if task.is_counted)
    return pb.GetMasterResponse(
        master_id=state.master_id,
        total=resources_to_wire(total_of(agent.total for agent in pooled)),
        used=resources_to_wire(total_of(task.info.resources for task in tasks)),
        offered=resources_to_wire(total_of(offer.resources for offer in state.offers.values())),
        held=resources_to_wire(idle_in_pool(state)),
        allocation_passes=state.allocator.passes,
        epoch=state.epoch,
        agents_missing=agents_missing(state),
        decided_in_ms=max(0, round(recovery_timeout_s(state, now) * 1000)),
    )


def view_role(status: RoleStatus, budget: BudgetStatus | None = None) -> pb.RoleView:
    """Return the view of a role and everything below it; `budget` says what is used of its own."""
    past = status.past
    return pb.RoleView(
        role=status.role,
        settings=settings_to_wire(status.settings),
        used=resources_to_wire(status.used),
        offered=resources_to_wire(status.offered),
        share_ppm=_ppm(status.share),
        entitlement_ppm=_ppm(status.entitlement),
        frameworks=status.frameworks,
        tasks=status.tasks,
        queued=status.queued,
        past_use=None if past is None else _past_use(past),
        budget_used_ppm=None if budget is None else budget.used_ppm,
    )


def _past_use(past: PastUse) -> pb.PastUse:
    part, share, factor_ppm = past.part_ppm, past.share_ppm, past.factor * 1000
    return pb.PastUse(part_ppm=part, share_ppm=share, factor_ppm=factor_ppm)


def view_moved(
    moved: RolesMoved, visible: Visibility | None = None, *, dry_run: bool
) -> pb.UpdateRolesResponse:
    """Return the effect of role changes, real or in a dry run, on roles that are `visible`."""
    wire = pb.UpdateRolesResponse(others=moved.omitted, dry_run=dry_run)
    for before, after in (*moved.named, *moved.others):
        if visible is not None and not visible.has_role(after.role):
            wire.others += 1
            continue
        wire.roles.add(before=view_role(before), after=view_role(after))
    return wire


def view_offer(state: State, offer: Offer, now: float) -> pb.OfferView:
    """Return the view of an offer with its age and the rest of its lease."""
    offered = Offered(
        offer.offer_id,
        state.agents[offer.agent_id].describe(),
        offer.role,
        offer.resources,
        max(offer.expires_at - now, 0.0),
        offer.hold_id,
    )
    return pb.OfferView(
        offer=offer_to_wire(offered),
        framework_id=offer.framework_id,
        framework_name=state.frameworks[offer.framework_id].name,
        hostname=state.agents[offer.agent_id].hostname,
        age_ms=int(max(now - offer.made_at, 0.0) * 1000),
    )


def view_hold(hold: HoldStatus) -> pb.HoldView:
    """Return the view of a hold."""
    return pb.HoldView(
        hold_id=hold.hold_id,
        agent_id=hold.agent_id,
        hostname=hold.hostname,
        role=hold.role,
        framework_id=hold.framework_id,
        framework_name=hold.framework_name,
        resources=resources_to_wire(hold.resources),
        unused=resources_to_wire(hold.unused),
        tasks=hold.tasks,
        ttl_left_ms=None if hold.ttl_left_s is None else int(hold.ttl_left_s * 1000),
        made_by=hold.made_by,
        charged=hold.is_charged,
        volume=hold.volume,
        orphan=hold.is_orphan,
        bounded=hold.is_bounded,
        age_ms=int(hold.age_s * 1000),
    )


def view_task(
    task: TaskSnapshot, wall: WallTime | None = None, *, with_command: bool = True
) -> pb.TaskView:
    """Return a task's view, with times if `wall` can; command and labels only `with_command`."""
    wire = pb.TaskView(
        framework_id=task.framework_id,
        agent_id=task.status.agent_id,
        role=task.role,
        task=task_to_wire(task.info) if with_command else _outline(task.info),
        status=status_to_wire(task.status),
        started_ms=task.started_ms or None,
        ended_ms=(task.status.time_ms or None) if task.status.state.is_terminal else None,
        framework_name=task.framework_name,
        hostname=task.hostname,
        hold_id=task.hold_id,
        requeues=task.requeues,
    )
    if wall is not None:
        wire.since_ms = wall.since_ms(task)
        if task.submitted is not None:
            wire.submitted_ms = wall.of(task.submitted)
        if task.placed is not None:
            wire.placed_ms = wall.of(task.placed)
    return wire


def view_framework(
    state: State,
    framework: Framework,
    now: float,
    visible: Visibility | None = None,
    wall: WallTime | None = None,
) -> pb.FrameworkView:
    """Return the view of a framework; of its roles only those that are `visible`.

    Its shares are over all of its roles, so they are 0 if one of these is not visible.
    """
    framework_id, queries = framework.framework_id, state.allocator.queries
    roles = framework.roles if visible is None else visible.roles_of(framework)
    is_whole = len(roles) == len(framework.roles)
    removed_at = state.deadlines.at(FailoverTimeout(framework_id))
    removed_in_s = None if removed_at is None else max(0.0, removed_at - now)
    tasks = [task for task in framework.tasks.values() if is_whole or task.role in roles]
    offers = [offer for offer in framework.offers.values() if is_whole or offer.role in roles]
    connected_at = None if framework.session is None else framework.connected_at
    states = Counter(task.state for task in tasks)
    grouped = [task.info.unit_id for task in tasks if task.is_queued and task.info.unit_id]
    used = total_of(task.info.resources for task in tasks if task.is_counted)
    charged = queries.charged(framework_id, roles).scalars
    beside = {name: milli - used[name] for name, milli in charged.items() if milli > used[name]}
    done = sum(number for state, number in states.items() if state.is_terminal)
    failed = sum(number for state, number in states.items() if state.is_failure)
    return pb.FrameworkView(
        framework=framework_pb2.FrameworkInfo(
            framework_id=framework_id,
            name=framework.name,
            roles=roles,
            failover_timeout_ms=round(framework.failover_timeout_s * 1000),
            hostname=framework.hostname,
            webui_url=framework.webui_url,
        ),
        state=framework.state.value,
        suppressed=queries.is_suppressed(framework_id),
        suppressed_roles=[r for r in queries.suppressed_roles(framework_id) if r in roles],
        demands=[
            demand_to_wire(each)
            for each in (*queries.queued_demands(framework_id), *queries.demands(framework_id))
            if (each.role or framework.roles[0]) in roles
        ],
        used=resources_to_wire(used),
        held=resources_to_wire(Resources(beside)),
        offered=resources_to_wire(total_of(offer.resources for offer in offers)),
        share_ppm=_ppm(queries.share(framework_id)) if is_whole else 0,
        entitlement_ppm=_ppm(queries.entitlement(framework_id)) if is_whole else 0,
        tasks=len(tasks) - done,
        running=len(tasks) - done - states[TaskState.QUEUED],
        queued=states[TaskState.QUEUED],
        lined_up=sum(task.is_lined_up for task in tasks),
        queued_in_groups=len(grouped),
        queued_groups=len(set(grouped)),
        done=done + (framework.done if is_whole else 0),
        failed=failed + (framework.failed if is_whole else 0),
        offers=len(offers),
        removed_in_ms=None if removed_in_s is None else round(removed_in_s * 1000),
        owner=framework.owner,
        connected_since_ms=wall.of(connected_at) if wall and connected_at is not None else None,
    )


def _outline(info: TaskInfo) -> task_pb2.TaskInfo:
    """Convert the task without its command and labels, which may be large."""
    wire = task_to_wire(info.outline())
    wire.ClearField("command")
    return wire


def _ppm(fraction: Fraction) -> int:
    return round(fraction * PPM)


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
        held=resources_to_wire(status.held),
        tasks=status.tasks,
        deactivated=status.deactivated,
        problems=(HealthProblem(part=p.part, message=p.message) for p in status.problems),
        default_user=status.default_user,
        decided_in_ms=_ms(status.timeout_in_s),
    )
    for use in status.device_uses:
        if visible is None or visible.has_framework_id(use.framework_id):
            wire.device_uses.add(
                device_id=use.device_id,
                framework_id=use.framework_id,
                task_id=use.task_id,
                milli=use.milli,
            )
    if wall is not None and status.connected_at is not None:
        wire.connected_since_ms = wall.of(status.connected_at)
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
    if agent.state is not AgentState.CONNECTED:
        return Cause.AGENT_AWAY, f"agent {agent.agent_id} is {agent.state_name}"
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
    wire = pb.Drain(
        done=drain.is_done,
        tasks_left=drain.tasks_left,
        grace_ms=drain.grace_ms,
        estimate_ms=_ms(drain.estimate_s),
    )
    for each in drain.blockers:
        if visible is not None and not visible.has_framework_id(each.framework_id):
            continue
        wire.blockers.add(framework_id=each.framework_id, task_id=each.task_id, reason=each.reason)
    return wire


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else max(0, round(seconds * 1000))
