"""Roles: the tasks in them, and rules for changes of their settings.

Settings never contradict each other: a guarantee is at most every limit above it, and the
guarantees below a role are together at most its own. New settings are also checked against the
present cluster, unless the change has `force`. Agents come and go, so old settings are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.ids import Role, check_role
from croupier.model.roles import RoleSettings, ancestors, format_amounts, parent_of
from croupier.model.task import TaskState

MAX_ROLES_SET = 10_000
MAX_CHANGES = 100

_ANYWAY = "--force accepts it all the same"
_UNTOUCHED = RoleSettings()


class RolePart(Enum):
    """A setting of a role."""

    WEIGHT = "weight"
    RESOURCE_WEIGHTS = "resource_weights"
    GUARANTEE = "guarantee"
    LIMIT = "limit"
    PREEMPTION = "preemption"
    MIN_RUN = "min_run_ms"
    HALF_LIFE = "half_life_ms"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class RoleChange:
    """New settings of one role.

    Attributes:
        settings: None for those of the master's flags.
        parts: the settings that change; empty for all.
    """

    role: Role
    settings: RoleSettings | None
    parts: tuple[RolePart, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterTotals:
    """The cluster that a change is checked against; amounts are thousandths of scalars.

    Attributes:
        total: resources of the agents that count; empty if there are none yet.
        known: names of the scalars that any known agent has or had.
        others: names of ranges and sets.
        away: the number of known agents that are absent or unreachable, and do not count.
        used: resources that tasks use in each role and below it.
    """

    total: Mapping[str, int]
    known: frozenset[str]
    others: frozenset[str]
    away: int
    used: Mapping[Role, Mapping[str, int]]


def changed_settings(
    changes: Sequence[RoleChange],
    now: Mapping[Role, RoleSettings],
    initial: Mapping[Role, RoleSettings],
) -> dict[Role, RoleSettings]:
    """Return all settings of each changed role; `initial` are those of the flags.

    Raises InvalidRequest if there are no changes, too many, or two for one role, or a role or an
    amount is illegal.
    """
    if not 0 < len(changes) <= MAX_CHANGES:
        raise InvalidRequest(f"between 1 and {MAX_CHANGES} roles can be changed at once")
    wanted: dict[Role, RoleSettings] = {}
    for change in changes:
        role = check_role(change.role)
        if role in wanted:
            raise InvalidRequest(f"role {role} is changed twice")
        given = change.settings or initial.get(role, RoleSettings())
        if change.parts:
            meant = {part.value: getattr(given, part.value) for part in change.parts}
            given = replace(now.get(role, RoleSettings()), **meant)
        try:
            given.check()
        except InvalidRequest as refusal:
            raise InvalidRequest(f"role {role}: {refusal}") from None
        wanted[role] = given.without_defaults()
    return wanted


def check_settings(roles: Mapping[Role, RoleSettings]) -> dict[str, int]:
    """Check that settings do not contradict each other; return all guarantees. O(roles).

    Raises InvalidRequest if there are any, or there are more than 10,000.
    """
    if len(roles) > MAX_ROLES_SET:
        raise InvalidRequest(f"more than {MAX_ROLES_SET} roles would have settings of their own")
    return _claims(roles)


def check_against(
    wanted: Mapping[Role, RoleSettings],
    now: Mapping[Role, RoleSettings],
    cluster: ClusterTotals,
    claims: Mapping[str, int],
) -> None:
    """Check the new settings in `wanted` against the present cluster.

    `claims` are the guarantees of all roles after the change, by resource.

    Raises:
        InvalidRequest: if a resource is unknown, or more is guaranteed than there is. A
            cluster without agents contradicts nothing.
        Conflict: if tasks of a role use more than its new limit.
    """
    for role, settings in wanted.items():
        _check_limit(role, settings, now.get(role, RoleSettings()), cluster)
    if not cluster.total:
        return
    for role, settings in wanted.items():
        _check_names(role, settings, now.get(role, RoleSettings()), cluster)
    above = {name for name, milli in claims.items() if milli > cluster.total.get(name, 0)}
    before = _claims(now) if above else {}
    for name in sorted(above):
        milli = claims[name]
        if milli > before.get(name, 0):
            raise Conflict(
                f"{_amount(name, milli)} would be guaranteed in all and the cluster has "
                f"{_amount(name, cluster.total.get(name, 0))}{_away(cluster)}; {_ANYWAY}"
            )


def is_set(role: Role, settings: RoleSettings, initial: Mapping[Role, RoleSettings]) -> bool:
    """Return whether the settings differ from those of the flags."""
    return settings != initial[role] if role in initial else not settings.is_default


def _claims(roles: Mapping[Role, RoleSettings]) -> dict[str, int]:
    """Return all guarantees by resource: of each role or, if it has none, of those below it.

    Raises InvalidRequest if more is guaranteed below a role than to it, or than its limit.
    """
    total: dict[str, int] = {}
    below: dict[Role, dict[str, int]] = {}
    for role in _guaranteed(roles):
        settings, children = roles.get(role, _UNTOUCHED), below.get(role)
        claims = settings.guarantee
        if children:
            claims = {**children, **_positive(settings.guarantee)}
            _check_children(role, settings, children)
        parent = parent_of(role)
        above = total if parent is None else below.setdefault(parent, {})
        for name, milli in claims.items():
            above[name] = above.get(name, 0) + milli
    return total


def _check_children(role: Role, settings: RoleSettings, children: Mapping[str, int]) -> None:
    for name, claimed in children.items():
        own, limit = settings.guarantee.get(name, 0), settings.limit.get(name)
        if own and claimed > own:
            raise InvalidRequest(
                f"{_amount(name, claimed)} is guaranteed to roles within {role}, "
                f"which itself is guaranteed {_amount(name, own)}"
            )
        if limit is not None and claimed > limit:
            raise InvalidRequest(
                f"{_amount(name, claimed)} is guaranteed to roles within {role}, "
                f"which is limited to {_amount(name, limit)}"
            )


def _guaranteed(roles: Mapping[Role, RoleSettings]) -> list[Role]:
    """Return the roles with guarantees and all above them, children before their parents."""
    found: dict[Role, int] = {}
    for role, settings in roles.items():
        if settings.guarantee:
            above: Role | None = role
            while above is not None and above not in found:
                found[above] = above.count("/")
                above = parent_of(above)
    return sorted(found, key=found.__getitem__, reverse=True)


def _positive(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: milli for name, milli in amounts.items() if milli}


def _check_limit(role: Role, new: RoleSettings, old: RoleSettings, cluster: ClusterTotals) -> None:
    used = cluster.used.get(role, {})
    for name, limit in new.limit.items():
        is_lowered = name not in old.limit or limit < old.limit[name]
        if is_lowered and used.get(name, 0) > limit:
            raise Conflict(
                f"role {role}: tasks use {_amount(name, used[name])}, which is more than the "
                f"limit {_amount(name, limit)}; {_ANYWAY}: they run on, and none is added"
            )


def _check_names(role: Role, new: RoleSettings, old: RoleSettings, cluster: ClusterTotals) -> None:
    for part in (RolePart.RESOURCE_WEIGHTS, RolePart.GUARANTEE, RolePart.LIMIT):
        names = set(getattr(new, part.value)) - set(getattr(old, part.value)) - cluster.known
        for name in sorted(names):
            known = ", ".join(sorted(cluster.known))
            if name in cluster.others:
                raise InvalidRequest(
                    f"role {role}: {name} has no amount, and only amounts count ({known})"
                )
            raise Conflict(
                f"role {role}: no agent has {name} (known: {known}){_away(cluster)}; {_ANYWAY}"
            )


def _amount(name: str, milli: int) -> str:
    return format_amounts({name: milli})


def _away(cluster: ClusterTotals) -> str:
    return f", {cluster.away} of its agents are away" if cluster.away else ""


def known_roles(state: State) -> set[Role]:
    """Return every role with frameworks or settings, and all above those."""
    found = set(state.allocator.queries.roles_in_use())
    for role in state.allocator.queries.roles():
        found.update((role, *ancestors(role)))
    return found


class TaskCounts:
    """The numbers of live tasks, and of the queued ones of them, in each role and below it."""

    def __init__(self) -> None:
        self._live: Counter[Role] = Counter()
        self._queued: Counter[Role] = Counter()

    def add(self, tasks: Collection[Task]) -> None:
        """Count tasks of one framework. O(tasks)."""
        live = Counter(task.role for task in tasks if not task.state.is_terminal)
        queued = Counter(task.role for task in tasks if task.state is TaskState.QUEUED)
        for counts, total in ((live, self._live), (queued, self._queued)):
            for role, number in counts.items():
                for each in (role, *ancestors(role)):
                    total[each] += number

    def of(self, role: Role) -> tuple[int, int]:
        """Return the numbers of a role: live tasks, and the queued ones of them."""
        return self._live[role], self._queued[role]


def count_tasks(state: State) -> TaskCounts:
    """Return the numbers of tasks of each role. O(tasks)."""
    counts = TaskCounts()
    for framework in state.frameworks.values():
        counts.add(framework.tasks.values())
    return counts


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
