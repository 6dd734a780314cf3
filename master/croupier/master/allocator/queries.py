"""Read-only queries of the allocator: holdings, entitlements, demand, and reasons."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from fractions import Fraction

from croupier.master.allocator import explain, limits
from croupier.master.allocator.entitlements import Entitlements, WhatIf
from croupier.master.allocator.node import (
    DEFAULT,
    Amounts,
    Branch,
    Leaf,
    Node,
    RoleNode,
    add_amounts,
)
from croupier.master.allocator.past_use import PastUse
from croupier.master.allocator.pending_demand import MANY, Shape
from croupier.master.allocator.picture import Lasting, Picture, Running, take
from croupier.master.allocator.reasons import PassedOver
from croupier.master.allocator.room import Room, room_for
from croupier.master.allocator.state import AllocatorState
from croupier.model.demand import Demand
from croupier.model.ids import NO_FRAMEWORK, AgentId, FrameworkId, Role
from croupier.model.resources import NOTHING, Resources
from croupier.model.roles import RoleSettings


@dataclass(frozen=True, slots=True)
class RoleStatus:
    """A role at one moment, with everything below it.

    Attributes:
        share: dominant share of the cluster, before the weight; used and offered.
        entitlement: the share it is entitled to; 0 without demand and usage.
        frameworks: the number that subscribe to it, or still hold resources in it.
        tasks: the number that have not ended.
        queued: those of them that wait for an agent.
        past: its past use, if that changes its weight.
    """

    role: Role
    settings: RoleSettings
    used: Resources = NOTHING
    offered: Resources = NOTHING
    share: Fraction = Fraction(0)
    entitlement: Fraction = Fraction(0)
    frameworks: int = 0
    tasks: int = 0
    queued: int = 0
    past: PastUse | None = None


class Queries:
    """Answers questions about an allocator; changes no decision."""

    def __init__(self, state: AllocatorState) -> None:
        self._state = state
        self._tree, self._agents, self._members = state.tree, state.agents, state.members

    # The cluster.

    @property
    def policy(self) -> str:
        """The name of the policy, as `--policy` takes it."""
        return self._tree.policy.name

    @property
    def total(self) -> Mapping[str, int]:
        """Thousandths of each scalar that all agents have together, absent ones included."""
        return self._tree.totals.amounts

    def held(self) -> tuple[Resources, Resources]:
        """Return what tasks use, and what is offered, in all roles. O(roles at the top)."""
        used: Amounts = {}
        held: Amounts = {}
        for node in self._tree.root.children.values():
            add_amounts(used, node.used, 1)
            add_amounts(held, node.held, 1)
        offered = {name: milli - used.get(name, 0) for name, milli in held.items()}
        return Resources(used), Resources(offered)

    def top_roles(self) -> list[Role]:
        """Return the roles at the top of the tree that are in use, in the order of arrival."""
        return [node.role for node in self._tree.root.children.values()]

    def free(self, agent_id: AgentId) -> Resources:
        """Return the agent's free resources."""
        return self._agents.agents[agent_id].free

    def filter_count(self) -> int:
        """Return how many filters there are, at most one for each framework and agent."""
        return sum(leaf.filters for leaf in self._tree.leaves.values())

    # Roles.

    def roles(self) -> Mapping[Role, RoleSettings]:
        """Return the settings of all roles that have any."""
        return self._tree.settings

    def roles_in_use(self) -> KeysView[Role]:
        """Return the roles that have frameworks at or below them, in the order of arrival."""
        return self._tree.roles.keys()

    def alive_below(self, role: Role) -> tuple[set[Role], int]:
        """Return the roles right below that hold or want something, and what its own weigh.

        Its own are the frameworks and principals right below it; the role "" is above all roles.
        """
        found, weight = set[Role](), 0
        node = self._tree.roles.get(role) if role else self._tree.root
        for each in node.below() if node is not None else ():
            if isinstance(each, RoleNode) and each.is_alive:
                found.add(each.role)
            elif each.is_alive:
                weight += each.weight
        return found, weight

    def role_status(self, role: Role, tasks: int = 0, queued: int = 0) -> RoleStatus:
        """Return the status of a role with `tasks` live tasks. O(nodes below it + depth)."""
        node, settings = self._tree.roles.get(role), self._tree.settings.get(role, DEFAULT)
        if node is None:
            return RoleStatus(role, settings, past=self._tree.past.get(role))
        offered = {name: milli - node.used.get(name, 0) for name, milli in node.held.items()}
        leaves = [each for each in node.nodes() if isinstance(each, Leaf)]
        return RoleStatus(
            role,
            settings,
            Resources(node.used),
            Resources(offered),
            self.role_share(role),
            self.role_entitlement(role),
            len({leaf.framework_id for leaf in leaves} - {NO_FRAMEWORK}),
            tasks,
            queued,
            self._tree.past.get(role),
        )

    def used_by_role(self) -> dict[Role, Mapping[str, int]]:
        """Return thousandths of each scalar that tasks in and below each role use."""
        return {role: node.used for role, node in self._tree.roles.items()}

    def role_share(self, role: Role) -> Fraction:
        """Return the role's dominant share of the cluster, before its weight."""
        node = self._tree.roles.get(role)
        return self._tree.totals.share(node.held) if node is not None else Fraction(0)

    def role_entitlement(self, role: Role) -> Fraction:
        """Return the role's entitlement; 0 if no framework in it wants or holds anything."""
        self._tree.refresh()
        node = self._tree.roles.get(role)
        return self._tree.entitlement(node) if node is not None else Fraction(0)

    def what_if(
        self, changes: Mapping[Role, RoleSettings], past: Mapping[Role, PastUse] | None = None
    ) -> WhatIf:
        """Return the entitlements as they would be with other settings of some roles.

        `past`: the past use of roles that follows from these settings; None: the present one.
        """
        return WhatIf(self._tree, changes, past)

    def past_use(self, role: Role) -> PastUse | None:
        """Return the role's past use, if that changes its weight."""
        return self._tree.past.get(role)

    def over_limit(self, role: Role) -> set[str]:
        """Return the resources that the role holds more of than its limit."""
        node = self._tree.roles.get(role)
        return limits.exceeded(node) if node is not None else set()

    def rough_role_shares(self) -> Iterator[tuple[Role, float]]:
        """Yield each role that has frameworks, and its rounded share. O(roles)."""
        totals = self._tree.totals.amounts
        for role, node in self._tree.roles.items():
            yield role, rough_share(node.held, totals)

    def rest_of_roles(self, roles: Iterable[Role]) -> Rest:
        """Return what is held in no role of `roles`, nor below one. O(roles at the top)."""
        self._tree.refresh()
        chosen = {self._tree.roles[role] for role in roles if role in self._tree.roles}
        others: list[Node] = []
        waiting: list[Node] = list(self._tree.root.children.values())
        above = {up for node in chosen for up in node.path[1:]}
        while waiting:
            node = waiting.pop()
            if node in chosen:
                continue
            if node in above and isinstance(node, Branch):
                waiting += node.below()
            else:
                others.append(node)
        return rest_of(others, self._tree.root, self._tree.totals.amounts)

    # Frameworks.

    def rough_framework_shares(self) -> Iterator[tuple[FrameworkId, float, bool]]:
        """Yield each framework, its rounded share, and whether it waits for more. O(frameworks).

        Of a framework with several roles it is the sum of its shares.
        """
        totals, shares = self._tree.totals.amounts, dict[FrameworkId, float]()
        waiting: set[FrameworkId] = set()
        for leaf in self._tree.leaves.values():
            if leaf.framework_id == NO_FRAMEWORK:
                continue
            share = rough_share(leaf.held, totals)
            shares[leaf.framework_id] = shares.get(leaf.framework_id, 0.0) + share
            if pending_units(leaf):
                waiting.add(leaf.framework_id)
        for framework_id, share in shares.items():
            yield framework_id, share, framework_id in waiting

    def rest_of_frameworks(self, framework_ids: Iterable[FrameworkId]) -> Rest:
        """Return what all frameworks but these hold. O(frameworks)."""
        self._tree.refresh()
        chosen = set(framework_ids)
        leaves = self._tree.leaves.values()
        others = [leaf for leaf in leaves if leaf.framework_id not in chosen]
        return rest_of(others, self._tree.root, self._tree.totals.amounts)

    def pending_units(self, framework_id: FrameworkId) -> int:
        """Return the units of demand and queued tasks that could be dealt, and wait."""
        return sum(map(pending_units, self._members.leaves(framework_id)))

    def demands(self, framework_id: FrameworkId) -> tuple[Demand, ...]:
        """Return the framework's declared demand less its launched tasks."""
        return self._members.demands(framework_id)

    def queued_demands(self, framework_id: FrameworkId) -> list[Demand]:
        """Return the demand that stands for the framework's submitted tasks."""
        return [
            replace(pending.demand, role=leaf.role)
            for leaf in self._members.leaves(framework_id)
            for pending in leaf.queued.values()
        ]

    def roles_of(self, framework_id: FrameworkId) -> list[Role]:
        """Return the roles that it subscribes to, and roles that it left but holds resources in."""
        return [leaf.role for leaf in self._members.leaves(framework_id)]

    def suppressed_roles(self, framework_id: FrameworkId) -> tuple[Role, ...]:
        """Return the roles in which the framework suppressed offers."""
        subscribed = self._members.subscribed(framework_id)
        return tuple(leaf.role for leaf in subscribed if leaf.is_suppressed)

    def is_suppressed(self, framework_id: FrameworkId) -> bool:
        """Return whether the framework suppressed offers in all its roles."""
        return all(leaf.is_suppressed for leaf in self._members.subscribed(framework_id))

    def charged(self, framework_id: FrameworkId, roles: Collection[Role]) -> Resources:
        """Return the scalars that its tasks, holds and volumes keep in these of its roles."""
        charged: Amounts = {}
        for leaf in self._members.leaves(framework_id):
            if leaf.role in roles:
                add_amounts(charged, leaf.used, 1)
        return Resources(charged)

    def share(self, framework_id: FrameworkId) -> Fraction:
        """Return the framework's dominant share of the cluster, all its roles together."""
        held: Amounts = {}
        for leaf in self._members.leaves(framework_id):
            add_amounts(held, leaf.held, 1)
        return self._tree.totals.share(held)

    def entitlement(self, framework_id: FrameworkId) -> Fraction:
        """Return the framework's entitlement, all its roles together."""
        self._tree.refresh()
        leaves = self._members.leaves(framework_id)
        return sum((self._tree.entitlement(leaf) for leaf in leaves), Fraction(0))

    def excess(
        self, framework_id: FrameworkId, role: Role, amount: Resources, place: AgentId | None = None
    ) -> str:
        """Return in words the limit that a launch of `amount` would exceed; empty if none.

        `place` is the hold from which it would be launched, if it is one.

        An offer is within all limits. A launch from it may exceed one if the limit was lowered or
        the framework declared less demand meanwhile.
        """
        leaf = self._members.leaf(framework_id, role)
        owner = None if place is None else self._agents.agents[place].owner
        return limits.excess(leaf, amount.scalars, owner) if leaf.limited else ""

    def room_for(self, demand: Demand, now: float) -> Generator[None, None, Room]:
        """Count the units of a demand that could start now; yields at moments for other work."""
        return room_for(demand, self._state, now)

    def picture(
        self,
        running: Sequence[Running],
        lined: Mapping[tuple[AgentId, FrameworkId, Role], int],
        lasts: Callable[[FrameworkId, Role], Lasting],
        now: float,
    ) -> Picture:
        """Return what rehearsals need to know; see `picture.take`."""
        return take(self._state, running, lined, lasts, now)

    def waiting_for(self, framework_id: FrameworkId) -> list[tuple[Role, Shape | Resources]]:
        """Return the shapes of the framework that wait, by role: first its submitted tasks."""
        found: list[tuple[Role, Shape | Resources]] = []
        for leaf in self._members.leaves(framework_id):
            if leaf.is_willing or leaf.parked_by is not None:
                found += [
                    (leaf.role, each.shape or each.demand.unit)
                    for each in leaf.pending or ()
                    if each.left
                ]
        return found

    def explaining(
        self, framework_id: FrameworkId, agent_id: AgentId | None, now: float
    ) -> Iterator[PassedOver | None]:
        """Yield why the framework is not dealt more, by role, and None at moments for other work.

        With `agent_id`, yield why it is not dealt that agent now.
        """
        self._tree.refresh()
        for leaf in self._members.subscribed(framework_id):
            if agent_id is None:
                yield from explain.of_leaf(leaf, self._state, now)
            else:
                yield explain.of_agent(leaf, self._agents.agents[agent_id], self._state, now)


@dataclass(frozen=True, slots=True)
class Rest:
    """Several nodes together, none within another.

    Attributes:
        share: the dominant share of everything that they hold.
        pending: units of demand that wait; 0 for roles.
    """

    share: float = 0.0
    entitlement: float = 0.0
    pending: int = 0


def rest_of(nodes: Iterable[Node], root: RoleNode, totals: Mapping[str, int]) -> Rest:
    """Sum up `nodes`. O(nodes x depth); a node that is not alive costs little."""
    held: Amounts = {}
    entitlements = Entitlements(root)
    entitlement, pending = 0.0, 0
    for node in nodes:
        if node.weighted_direction is not None:
            part, whole = entitlements.ratio(node)
            entitlement += part / whole
        for name, milli in node.held.items():
            held[name] = held.get(name, 0) + milli
        if isinstance(node, Leaf):
            pending += pending_units(node)
    return Rest(rough_share(held, totals), entitlement, pending)


def rough_share(held: Mapping[str, int], totals: Mapping[str, int]) -> float:
    """Return a dominant share that is rounded: for reports, not for decisions."""
    return max((milli / totals[name] for name, milli in held.items() if name in totals), default=0)


def pending_units(leaf: Leaf) -> int:
    """Return the units that a framework waits for in one role.

    A demand without a count is one unit. Demand that limits block, or of a framework that can
    receive no offers, is not counted.
    """
    if not leaf.is_willing or leaf.pending is None:
        return 0
    return sum(1 if each.left == MANY else each.left for each in leaf.pending)
