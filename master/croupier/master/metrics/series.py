"""Metrics of single roles and frameworks: a bounded number of each, and the rest as `other`.

Those with the highest scores have series of their own, without flapping. A name that comes in stays
for `MIN_STAY_S`. After that another name takes its place only with a score that is higher by half.
So two names with about the same score do not alternate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from heapq import nlargest
from typing import Final, Generic, TypeVar

from croupier.master.allocator.queries import Queries, Rest
from croupier.master.core.frameworks import Framework
from croupier.master.core.hold_commands import held_by_role
from croupier.master.core.state import State
from croupier.model.ids import FrameworkId, Role
from croupier.model.roles import RoleSettings
from croupier.process.metric_families import Family, exported_amount

# Scores are compared again after this time, and at once while there is room.
RANK_AGAIN_S = 60.0
MIN_STAY_S = 600.0
BONUS = 1.5
OTHER = "other"

MemberT = TypeVar("MemberT")
LABELS: Final = ("framework", "name")


@dataclass(frozen=True, slots=True)
class Score:
    """The rank of a name among those that compete for a series; pinned ones come first."""

    amount: float
    is_pinned: bool = False


class TopNames:
    """At most `most` names, chosen by their scores; in `names`, the highest score comes first."""

    def __init__(self, most: int) -> None:
        self.names: tuple[str, ...] = ()
        self._most = most
        self._entered: dict[str, float] = {}
        self._due = 0.0

    def update(self, scores: Callable[[], Mapping[str, Score]], now: float) -> None:
        """Choose again if that is due; `scores` is called then only. O(names), else O(1).

        A name that equals `OTHER` is never chosen: it would be mistaken for the rest.
        """
        if now < self._due and len(self.names) >= self._most:
            return
        self._due = now + RANK_AGAIN_S
        known = scores()

        def rank(name: str) -> tuple[bool, bool, float, bool]:
            entered = self._entered.get(name)
            is_new = entered is not None and now - entered < MIN_STAY_S
            amount = known[name].amount * (1.0 if entered is None else BONUS)
            return known[name].is_pinned, is_new, amount, entered is not None

        names = nlargest(self._most, (name for name in known if name != OTHER), key=rank)
        self._entered = {name: self._entered.get(name, now) for name in names}
        self.names = tuple(names)


@dataclass(frozen=True, slots=True)
class Series(Generic[MemberT]):
    """The roles, or the frameworks, exported at one scrape; `rest` is of all others together."""

    state: State
    members: tuple[MemberT, ...]
    rest: Rest

    @property
    def queries(self) -> Queries:
        """What the allocator knows of them."""
        return self.state.allocator.queries


RoleSeries = Series[Role]
FrameworkSeries = Series[Framework]


def role_series(state: State, names: TopNames, now: float) -> RoleSeries:
    """Choose the roles to export at `now`, in seconds on the master's clock."""
    queries = state.allocator.queries

    def scores() -> Mapping[str, Score]:
        known = queries.roles()
        found = {
            str(role): Score(share, role in known) for role, share in queries.rough_role_shares()
        }
        return {role: Score(0.0, is_pinned=True) for role in known} | found

    names.update(scores, now)
    present = queries.roles_in_use() | queries.roles().keys()
    roles = tuple(Role(name) for name in names.names if name in present)
    return Series(state, roles, queries.rest_of_roles(roles))


def _by_role(
    series: RoleSeries, value_of: Callable[[Role], Fraction], rest: float
) -> dict[str, float]:
    return {role: float(value_of(role)) for role in series.members} | {OTHER: rest}


def _settings(series: RoleSeries) -> Iterator[tuple[Role, RoleSettings]]:
    known = series.queries.roles()
    for role in series.members:
        yield role, known.get(role) or RoleSettings()


def _amounts(
    series: RoleSeries, amounts_of: Callable[[RoleSettings], Mapping[str, int]]
) -> dict[tuple[str, ...], float]:
    return {
        (role, resource): exported_amount(resource, milli)
        for role, settings in _settings(series)
        for resource, milli in amounts_of(settings).items()
    }


def _factor(series: RoleSeries, role: Role) -> float:
    past = series.queries.past_use(role)
    return 1.0 if past is None else past.factor / 1000


def _held(series: RoleSeries) -> dict[tuple[str, ...], float]:
    held = held_by_role(series.state)
    found: dict[tuple[str, ...], float] = {}
    for role in series.members:
        if role in held:
            for label, amount in zip(("held", "unused"), held[role], strict=True):
                for name in held[role][0].scalars:
                    found[role, name, label] = exported_amount(name, amount[name])
    return found


def _usage(series: RoleSeries) -> dict[tuple[str, ...], float]:
    used = series.state.usage.by_role
    return {
        (role, resource): exported_amount(resource, milli) / 1000
        for role in series.members
        for resource, milli in used.get(role, {}).items()
    }


def _budgets(series: RoleSeries) -> dict[str, float]:
    known = series.state.budgets
    return {role: known[role].used_ppm / 1_000_000 for role in series.members if role in known}


ROLES: Final[tuple[Family[RoleSeries], ...]] = (
    Family(
        "role_dominant_share",
        "Dominant share of a role, offered and used; of the role other, of all roles that are not"
        " exported.",
        lambda series: _by_role(series, series.queries.role_share, series.rest.share),
        ("role",),
    ),
    Family(
        "role_entitlement",
        "Dominant share that a role is entitled to; 0 while it has neither demand nor resources.",
        lambda series: _by_role(series, series.queries.role_entitlement, series.rest.entitlement),
        ("role",),
    ),
    Family(
        "role_held",
        "Resources held for a role or a framework in it: held in all, and the unused part.",
        _held,
        ("role", "resource", "state"),
    ),
    Family(
        "role_usage_seconds",
        "Resources times seconds that tasks of a role used in this term, up to a minute ago; mem"
        " and disk in bytes.",
        _usage,
        ("role", "resource"),
        is_counter=True,
    ),
    Family(
        "role_budget_used",
        "Used part of a role's budget in the present period, up to a minute ago; 1 is all of it.",
        _budgets,
        ("role",),
    ),
    Family(
        "role_weight",
        "Weight of a role.",
        lambda series: {str(role): each.weight / 1000 for role, each in _settings(series)},
        ("role",),
    ),
    Family(
        "role_weight_factor",
        "What past use multiplies the weight of a role by; 1 without a half-life.",
        lambda series: {str(role): _factor(series, role) for role in series.members},
        ("role",),
    ),
    Family(
        "role_guarantee",
        "Guarantee of a role; mem and disk in bytes.",
        lambda series: _amounts(series, lambda settings: settings.guarantee),
        ("role", "resource"),
    ),
    Family(
        "role_limit",
        "Limit of a role; mem and disk in bytes.",
        lambda series: _amounts(series, lambda settings: settings.limit),
        ("role", "resource"),
    ),
)


def framework_series(state: State, names: TopNames, now: float) -> FrameworkSeries:
    """Choose the frameworks to export at `now`, in seconds on the master's clock."""
    queries = state.allocator.queries

    def scores() -> Mapping[str, Score]:
        # One that waits counts as if it held an equal share: it may hold nothing.
        equal = 1 / max(len(state.frameworks), 1)
        return {
            framework_id: Score(max(share, equal if is_waiting else 0.0))
            for framework_id, share, is_waiting in queries.rough_framework_shares()
        }

    names.update(scores, now)
    known = (state.frameworks.get(FrameworkId(name)) for name in names.names)
    chosen = tuple(framework for framework in known if framework is not None)
    rest = queries.rest_of_frameworks([framework.framework_id for framework in chosen])
    return Series(state, chosen, rest)


def _by_framework(
    series: FrameworkSeries, value_of: Callable[[Framework], float], rest: float
) -> dict[tuple[str, ...], float]:
    values: dict[tuple[str, ...], float] = {
        (framework.framework_id, framework.name): value_of(framework)
        for framework in series.members
    }
    return values | {(OTHER, OTHER): rest}


def _tasks(series: FrameworkSeries) -> dict[tuple[str, ...], float]:
    everything = sum(map(_live, series.state.frameworks.values()))
    return _by_framework(series, _live, everything - sum(map(_live, series.members)))


def _live(framework: Framework) -> int:
    return len(framework.tasks) - framework.ended


FRAMEWORKS: Final[tuple[Family[FrameworkSeries], ...]] = (
    Family(
        "framework_dominant_share",
        "Dominant share of a framework, offered and used; of the framework other, of all"
        " frameworks that are not exported.",
        lambda series: _by_framework(
            series, lambda each: float(series.queries.share(each.framework_id)), series.rest.share
        ),
        LABELS,
    ),
    Family(
        "framework_entitlement",
        "Dominant share that a framework is entitled to; 0 while it has neither demand nor"
        " resources.",
        lambda series: _by_framework(
            series,
            lambda each: float(series.queries.entitlement(each.framework_id)),
            series.rest.entitlement,
        ),
        LABELS,
    ),
    Family(
        "framework_pending",
        "Units of demand and queued tasks of a framework that could be dealt and wait for"
        " resources; a demand without a count is 1.",
        lambda series: _by_framework(
            series,
            lambda each: series.queries.pending_units(each.framework_id),
            series.rest.pending,
        ),
        LABELS,
    ),
    Family("framework_tasks", "Tasks of a framework that have not ended.", _tasks, LABELS),
)
