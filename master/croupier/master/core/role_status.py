"""How roles stand: what is set of them, what they hold, and what is their due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from croupier.master.allocator.node import Leaf
from croupier.master.core.roles import Cluster
from croupier.master.core.state import State
from croupier.model.ids import Role
from croupier.model.resources import NOTHING, Resources
from croupier.model.roles import RoleSettings, ancestors

_UNTOUCHED = RoleSettings()


@dataclass(frozen=True, slots=True)
class RoleStanding:
    """A role with everything below it, at one moment.

    Attributes:
        share: dominant share of the cluster, before the weight; used and offered.
        entitlement: the share that is its due; 0 while nobody in it wants or holds any.
        frameworks: how many subscribe to it, or still hold something in it.
        tasks: how many have not ended.
    """

    role: Role
    settings: RoleSettings
    used: Resources = NOTHING
    offered: Resources = NOTHING
    share: Fraction = Fraction(0)
    entitlement: Fraction = Fraction(0)
    frameworks: int = 0
    tasks: int = 0


def stand_role(state: State, role: Role, tasks: int) -> RoleStanding:
    """One role, in and below which so many tasks have not ended. O(nodes below it + depth).

    A role that no framework has and no operator has set anything of is empty.
    """
    allocator = state.allocator
    settings = allocator.roles().get(role, _UNTOUCHED)
    pool = allocator.tree.roles.get(role)
    if pool is None:
        return RoleStanding(role, settings)
    offered = {name: milli - pool.used.get(name, 0) for name, milli in pool.held.items()}
    return RoleStanding(
        role,
        settings,
        Resources(pool.used),
        Resources(offered),
        allocator.role_share(role),
        allocator.role_entitlement(role),
        len({node.framework_id for node in pool.nodes() if isinstance(node, Leaf)}),
        tasks,
    )


def stand(state: State) -> dict[Role, RoleStanding]:
    """Every role that has frameworks or settings, and all above those, from the top down."""
    tasks = count_tasks(state)
    return {
        role: stand_role(state, role, tasks[role]) for role in in_tree_order(known_roles(state))
    }


def known_roles(state: State) -> set[Role]:
    """Every role that has frameworks or settings, and all above those."""
    found = set(state.allocator.tree.roles)
    for role in state.allocator.roles():
        found.update((role, *ancestors(role)))
    return found


def count_tasks(state: State) -> Counter[Role]:
    """How many tasks that have not ended are in each role and below it. O(tasks)."""
    return with_those_below(
        Counter(
            task.role
            for framework in state.frameworks.values()
            for task in framework.tasks.values()
            if not task.state.is_terminal
        )
    )


def with_those_below(counts: Counter[Role]) -> Counter[Role]:
    """What is counted in each role, and in all below it together."""
    total = Counter(counts)
    for role, number in counts.items():
        for above in ancestors(role):
            total[above] += number
    return total


def in_tree_order(roles: Iterable[Role]) -> list[Role]:
    """The roles and all above them, each once, parents right before what is below them."""
    known = {above for role in set(roles) for above in (role, *ancestors(role))}
    return sorted(known, key=lambda role: role.split("/"))


def cluster_of(state: State) -> Cluster:
    """What a change of roles is held against. O(agents)."""
    known = set(state.allocator.resource_names)
    others: set[str] = set()
    for agent in state.agents.values():
        known.update(agent.total.scalars)
        others.update(agent.total.ranges, agent.total.sets)
    return Cluster(
        dict(state.allocator.total),
        frozenset(known),
        frozenset(others - known),
        sum(not agent.in_pool for agent in state.agents.values()),
        {role: pool.used for role, pool in state.allocator.tree.roles.items()},
    )
