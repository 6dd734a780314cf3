"""Whether the amounts that the master reports add up. Pure except for `read_accounts`.

Rule: every view reports as used the sum of the unfinished tasks. Nothing is counted twice. An idle
cluster uses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from croupier.model.resources import NOTHING, Resources, total_of
from croupier.model.task import TaskState
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from croupier.wire.resources import resources_from_wire
from tests.chaos.real.checker import Violation

PPM = 1_000_000
RPC_S = 10.0


@dataclass(frozen=True, slots=True)
class TaskLine:
    """A task that has not ended."""

    task_id: str
    agent_id: str
    framework_id: str
    role: str
    resources: Resources


@dataclass(frozen=True, slots=True)
class HoldLine:
    """A hold.

    Attributes:
        framework_id: empty if it is for the role.
        idle: what of it is neither used nor offered; nothing if its owner is not charged.
    """

    hold_id: str
    agent_id: str
    framework_id: str
    role: str
    idle: Resources


@dataclass(frozen=True, slots=True)
class Holder:
    """What the master reports about an agent, framework or role.

    Attributes:
        name: id of the agent or framework, or the role.
        total: resources of an agent; else empty.
        share_ppm: share of a framework or role; else 0.
        held: what of an agent's holds, or of all, is neither used nor offered; else empty.
    """

    name: str
    used: Resources
    offered: Resources
    tasks: int
    total: Resources = NOTHING
    share_ppm: int = 0
    held: Resources = NOTHING


@dataclass(frozen=True, slots=True)
class MasterAccounts:
    """What the master reports at one moment."""

    cluster: Holder
    agents: tuple[Holder, ...]
    frameworks: tuple[Holder, ...]
    roles: tuple[Holder, ...]
    tasks: tuple[TaskLine, ...]
    holds: tuple[HoldLine, ...] = ()


async def read_accounts(operator: OperatorServiceStub) -> MasterAccounts | None:
    """Read the master's lists; return None if they changed meanwhile."""
    before = await _read(operator)
    return before if before == await _read(operator) else None


def check_accounts(accounts: MasterAccounts) -> list[Violation]:
    """Return what does not add up while all agents are registered."""
    return list(_check(accounts))


def check_idle(accounts: MasterAccounts, total: Resources) -> list[Violation]:
    """Return what is still held in an idle cluster with `total` resources."""
    found = check_accounts(accounts)
    found += [Violation("leak", task.task_id, "is still listed") for task in accounts.tasks]
    found += [Violation("leak", hold.hold_id, "is still held") for hold in accounts.holds]
    holders = (accounts.cluster, *accounts.agents, *accounts.frameworks, *accounts.roles)
    for holder in holders:
        if holder.used or holder.offered or holder.share_ppm:
            detail = f"used {holder.used}, offered {holder.offered}, share {holder.share_ppm}"
            found.append(Violation("leak", holder.name, detail))
    if accounts.cluster.total != total:
        found.append(Violation("leak", "cluster", f"{accounts.cluster.total} of {total} is there"))
    return found


def _check(accounts: MasterAccounts) -> Iterator[Violation]:
    for agent in accounts.agents:
        mine = [task for task in accounts.tasks if task.agent_id == agent.name]
        yield from _check_holder(agent, mine)
        if not agent.used + agent.offered + agent.held <= agent.total:
            counts = f"{agent.used} used, {agent.offered} offered and {agent.held} held"
            yield Violation("counted_twice", agent.name, f"{counts} of {agent.total}")
        idle = total_of(hold.idle for hold in accounts.holds if hold.agent_id == agent.name)
        if agent.held != idle:
            yield Violation("miscounted", agent.name, f"{agent.held} held, by its holds {idle}")
    total = total_of(agent.total for agent in accounts.agents)
    for framework in accounts.frameworks:
        mine = [task for task in accounts.tasks if task.framework_id == framework.name]
        idle = total_of(h.idle for h in accounts.holds if h.framework_id == framework.name)
        yield from _check_holder(framework, mine)
        yield from _check_share(framework, idle, total)
    for role in accounts.roles:
        mine = [task for task in accounts.tasks if _is_in(task.role, role.name)]
        idle = total_of(hold.idle for hold in accounts.holds if _is_in(hold.role, role.name))
        # All that a role is charged for counts as used.
        yield from _check_holder(role, mine, idle)
        yield from _check_share(role, NOTHING, total)
    yield from _check_holder(accounts.cluster, accounts.tasks)
    offered = total_of(agent.offered for agent in accounts.agents)
    for name, told in (("cluster", accounts.cluster.offered), ("frameworks", _offered(accounts))):
        if told != offered:
            yield Violation("counted_twice", name, f"{told} is offered, by agents {offered}")
    held = total_of(agent.held for agent in accounts.agents)
    if accounts.cluster.held != held:
        yield Violation("miscounted", "cluster", f"{accounts.cluster.held} held, by agents {held}")


def _is_in(role: str, above: str) -> bool:
    return role == above or role.startswith(f"{above}/")


def _check_holder(
    holder: Holder, tasks: Sequence[TaskLine], idle: Resources = NOTHING
) -> Iterator[Violation]:
    used = total_of([idle, *(task.resources for task in tasks)])
    if holder.used != used:
        kind = "counted_twice" if used <= holder.used else "not_counted"
        yield Violation(kind, holder.name, f"{holder.used} is used, by its tasks {used}")
    if holder.tasks != len(tasks):
        yield Violation("miscounted", holder.name, f"{holder.tasks} tasks, not {len(tasks)}")


def _check_share(holder: Holder, idle: Resources, total: Resources) -> Iterator[Violation]:
    held = holder.used + holder.offered + idle
    due = max((held[name] * PPM // total[name] for name, amount in total.scalars.items() if amount),
              default=0)  # fmt: skip
    if abs(holder.share_ppm - due) > 1:
        yield Violation("share", holder.name, f"{holder.share_ppm} ppm, by what it holds {due}")


def _offered(accounts: MasterAccounts) -> Resources:
    return total_of(framework.offered for framework in accounts.frameworks)


async def _read(operator: OperatorServiceStub) -> MasterAccounts:
    tasks = await operator.ListTasks(pb.ListTasksRequest(), timeout=RPC_S)
    master = await operator.GetMaster(pb.GetMasterRequest(), timeout=RPC_S)
    agents = await operator.ListAgents(pb.ListAgentsRequest(), timeout=RPC_S)
    frameworks = await operator.ListFrameworks(pb.ListFrameworksRequest(), timeout=RPC_S)
    roles = await operator.ListRoles(pb.ListRolesRequest(), timeout=RPC_S)
    holds = await operator.ListHolds(pb.ListHoldsRequest(), timeout=RPC_S)
    offers = await operator.ListOffers(pb.ListOffersRequest(), timeout=RPC_S)
    live = tuple(_live(tasks.tasks))
    return MasterAccounts(
        _holder("cluster", master, len(live)),
        tuple(_holder(view.agent.agent_id, view, view.tasks) for view in agents.agents),
        tuple(
            _holder(view.framework.framework_id, view, view.tasks) for view in frameworks.frameworks
        ),
        tuple(_holder(view.role, view, view.tasks) for view in roles.roles),
        live,
        tuple(_hold(view, offers.offers) for view in holds.holds),
    )


def _hold(view: pb.HoldView, offers: Iterable[pb.OfferView]) -> HoldLine:
    """Return a hold; its view counts what is offered of it as unused."""
    mine = [each.offer for each in offers if each.offer.hold_id == view.hold_id]
    unused = resources_from_wire(view.unused)
    offered = total_of(resources_from_wire(offer.resources) for offer in mine)
    # The two lists may be of different moments: the accounts are then read again.
    idle = unused - offered if view.charged and offered <= unused else NOTHING
    return HoldLine(view.hold_id, view.agent_id, view.framework_id, view.role, idle)


def _holder(name: str, view: Any, tasks: int) -> Holder:
    """Return the amounts of a view; only some have a total or a share."""
    total = resources_from_wire(view.total) if hasattr(view, "total") else NOTHING
    used, offered = resources_from_wire(view.used), resources_from_wire(view.offered)
    held = resources_from_wire(view.held) if hasattr(view, "held") else NOTHING
    return Holder(name, used, offered, tasks, total, getattr(view, "share_ppm", 0), held)


def _live(views: Iterable[pb.TaskView]) -> Iterator[TaskLine]:
    for view in views:
        if not TaskState(view.status.state).is_terminal:
            is_queued = TaskState(view.status.state) is TaskState.QUEUED
            resources = NOTHING if is_queued else resources_from_wire(view.task.resources)
            yield TaskLine(
                view.task.task_id, view.agent_id, view.framework_id, view.role, resources
            )
