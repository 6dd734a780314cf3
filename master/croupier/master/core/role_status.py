"""The status of a role: its settings, resources and entitlement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from croupier.master.core.roles import ClusterTotals
from croupier.master.core.state import State
from croupier.model.ids import Role
from croupier.model.resources import NOTHING, Resources
from croupier.model.roles import RoleSettings, ancestors

_UNTOUCHED = RoleSettings()


@dataclass(frozen=True, slots=True)
class RoleStatus:
    """A role at one moment, with everything below it.

    Attributes:
        share: dominant share of the cluster, before the weight; used and offered.
        entitlement: the share it is entitled to; 0 without demand and usage.
        frameworks: the number that subscribe to it, or still hold resources in it.
        tasks: the number that have not ended.
        queued: those of them that wait for an agent.
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


def role_status(state: State, role: Role, tasks: int) -> RoleStatus:
    """Return the status of a role with `tasks` live tasks. O(nodes below it + depth)."""
    queries = state.allocator.queries
    settings = queries.roles().get(role, _UNTOUCHED)
    if role not in queries.roles_in_use():
        return RoleStatus(role, settings)
    usage = queries.role_usage(role)
    return RoleStatus(
        role,
        settings,
        usage.used,
        usage.offered,
        queries.role_share(role),
        queries.role_entitlement(role),
        usage.frameworks,
        tasks,
        usage.queued,
    )


def known_roles(state: State) -> set[Role]:
    """Return every role with frameworks or settings, and all above those."""
    found = set(state.allocator.queries.roles_in_use())
    for role in state.allocator.queries.roles():
        found.update((role, *ancestors(role)))
    return found


def count_tasks(state: State) -> Counter[Role]:
    """Return the number of live tasks in each role and below it. O(tasks)."""
    return with_those_below(
        Counter(
            task.role
            for framework in state.frameworks.values()
            for task in framework.tasks.values()
            if not task.state.is_terminal
        )
    )


def with_those_below(counts: Counter[Role]) -> Counter[Role]:
    """Add the count of each role to those above it."""
    total = Counter(counts)
    for role, number in counts.items():
        for above in ancestors(role):
            total[above] += number
    return total


def in_tree_order(roles: Iterable[Role]) -> list[Role]:
    """Return the roles and all above them, each parent right before those below it."""
    known = {above for role in set(roles) for above in (role, *ancestors(role))}
    return sorted(known, key=lambda role: role.split("/"))


def cluster_of(state: State) -> ClusterTotals:
    """Return the cluster that a change of roles is checked against. O(agents)."""
    known = set(state.allocator.queries.total)
    others: set[str] = set()
    for agent in state.agents.values():
        known.update(agent.total.scalars)
        others.update(agent.total.ranges, agent.total.sets)
    return ClusterTotals(
        dict(state.allocator.queries.total),
        frozenset(known),
        frozenset(others - known),
        sum(not agent.in_pool for agent in state.agents.values()),
        state.allocator.queries.used_by_role(),
    )
