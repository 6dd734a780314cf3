"""Operator commands for holds: make one for a role, release any."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

from croupier.master.core import hold_charges, on_hold
from croupier.master.core.agent_commands import find_agent
from croupier.master.core.authorisation import finds_in_role, require
from croupier.master.core.calls import MakeHold
from croupier.master.core.effects import Effect, Send
from croupier.master.core.events import OperatorCommand
from croupier.master.core.holds import Hold, HoldState
from croupier.master.core.state import State
from croupier.model import ids
from croupier.model.access import Action, agent_object, role_object
from croupier.model.agent_orders import SetVolume
from croupier.model.errors import Conflict, NotFound
from croupier.model.isolation import Feature
from croupier.model.principal import ANONYMOUS, Principal
from croupier.model.resources import NOTHING, Resources, total_of


@dataclass(frozen=True, slots=True)
class HoldStatus:
    """A hold at one moment.

    Attributes:
        unused: what no task uses of it.
        tasks: how many live tasks use some of it, or use the volume.
        ttl_left_s: None if it has no end.
        is_charged: whether its owner is charged for it.
        is_orphan: whether it is a directory of a volume on the agent that no hold is for.
        is_bounded: whether the agent keeps the files of the volume to its size.
    """

    hold_id: ids.HoldId
    agent_id: ids.AgentId
    hostname: str
    role: ids.Role
    framework_id: ids.FrameworkId
    framework_name: str
    resources: Resources
    unused: Resources
    tasks: int
    ttl_left_s: float | None
    made_by: ids.FrameworkId
    is_charged: bool
    age_s: float
    volume: bool
    is_orphan: bool
    is_bounded: bool


def hold_status(state: State, hold: Hold, now: float) -> HoldStatus:
    """Return the status of a hold. O(tasks of its agent)."""
    agent = state.agents[hold.agent_id]
    framework = state.frameworks.get(hold.framework_id)
    live = [task for task in agent.tasks.values() if not task.state.is_terminal]
    tasks = [task for task in live if task.hold_id == hold.hold_id]
    return HoldStatus(
        hold.hold_id,
        hold.agent_id,
        agent.hostname,
        hold.role,
        hold.framework_id,
        "" if framework is None else framework.name,
        hold.resources,
        hold_charges.unused(state, hold),
        len(on_hold.users_of(state, hold) if hold.volume else tasks),
        None if hold.expires_at is None else max(hold.expires_at - now, 0.0),
        hold.made_by,
        hold.is_charged,
        max(now - hold.since, 0.0),
        hold.volume,
        hold.state is HoldState.ENDED,
        hold.volume and Feature.DISK_QUOTA in agent.features,
    )


def held_by_role(state: State) -> dict[ids.Role, tuple[Resources, Resources]]:
    """Return the scalars that are held for each role and its frameworks, and what is unused."""
    found: dict[ids.Role, tuple[Resources, Resources]] = {}
    for hold in state.holds.values():
        if hold.is_charged:
            held, unused = found.get(hold.role, (NOTHING, NOTHING))
            more = hold_charges.unused(state, hold)
            found[hold.role] = total_of([held, hold.resources]), total_of([unused, more])
    return found


@dataclass(frozen=True, slots=True)
class CreateHold(OperatorCommand[HoldStatus]):
    """Hold free resources of an agent for a role.

    Attributes:
        agent: its id, or its hostname if no other agent has that.
        wanted: the hold; without an id the master makes one.
    """

    agent: str
    role: ids.Role
    wanted: MakeHold
    operator: str = ""
    caller: Principal = ANONYMOUS

    def execute(self, state: State, now: float) -> Generator[Effect, None, HoldStatus]:
        """Make the hold.

        Raises:
            NotFound: if there is no such agent, or the caller may not view it.
            PermissionDenied: if the caller may not operate the agent or change the role.
            InvalidRequest: if the hold is malformed.
            Conflict: if that much is not free, or the role's limit leaves less.
        """
        permissions = state.permissions(self.caller)
        agent = find_agent(state, permissions, self.agent)
        ids.check_role(self.role)
        require(permissions, Action.OPERATE_AGENTS, agent_object(agent.agent_id))
        require(permissions, Action.CHANGE_ROLES, role_object(self.role))
        hold_id = self.wanted.hold_id or ids.HoldId(state.next_id("H"))
        wanted = replace(self.wanted, hold_id=hold_id, for_role=True)
        on_hold.check_hold(state, wanted, ids.NO_FRAMEWORK, agent, self.role)
        if not agent.in_pool:
            raise Conflict(f"agent {agent.agent_id} is {agent.state_name}")
        free = state.allocator.queries.free(agent.agent_id)
        wanted = replace(wanted, resources=agent.certain(wanted.resources, [free]))
        if not wanted.resources <= free:
            excess = wanted.resources.excess(free)
            what = "what is free of the agent and not offered"
            raise Conflict(f"the hold does not fit in {what}: {excess}")
        over = state.allocator.holds.excess(self.role, wanted.resources)
        if over:
            raise Conflict(f"the hold would go over a limit: {over}")
        hold = on_hold.new_hold(wanted, agent.agent_id, self.role, None, 0, now)
        yield from on_hold.make_hold(state, hold, now, by=self.operator)
        return hold_status(state, hold, now)


@dataclass(frozen=True, slots=True)
class ReleaseHold(OperatorCommand[HoldStatus]):
    """End a hold of any owner, or remove the directory of a volume that no hold is for."""

    hold_id: ids.HoldId
    operator: str = ""
    caller: Principal = ANONYMOUS

    def execute(self, state: State, now: float) -> Generator[Effect, None, HoldStatus]:
        """End the hold, and return what it was.

        Raises:
            NotFound: if there is no such hold, or the caller may not view it.
            PermissionDenied: if the caller neither owns its framework nor may operate its agent.
            Conflict: if it is a volume that tasks use.
        """
        permissions = state.permissions(self.caller)
        hold = on_hold.holds_and_orphans(state).get(self.hold_id)
        owner = "" if hold is None else owner_of(state, hold)
        may_operate = hold is not None and bool(
            permissions.decide(Action.OPERATE_AGENTS, agent_object(hold.agent_id))
        )
        if hold is None or not (
            may_operate or finds_in_role(permissions, Action.VIEW, hold.role, owner)
        ):
            raise NotFound(f"no hold {self.hold_id[: ids.MAX_ID_BYTES]!r}; it may have ended")
        require(permissions, Action.OPERATE_AGENTS, agent_object(hold.agent_id), owner)
        on_hold.check_release(state, hold)
        status = hold_status(state, hold, now)
        if status.is_orphan:
            agent = state.agents[hold.agent_id]
            if agent.session is None:
                raise Conflict(f"agent {agent.agent_id} is {agent.state_name}: try again later")
            yield Send(agent.session, SetVolume(agent.orphans.pop(hold.hold_id), 0))
            return status
        message = "an operator released it"
        yield from on_hold.end_hold(state, hold, "released", message, now, self.operator)
        return status


def owner_of(state: State, hold: Hold) -> str:
    """Return the principal that owns the framework of a hold; empty if there is none."""
    framework = state.frameworks.get(hold.framework_id)
    return "" if framework is None else framework.owner
