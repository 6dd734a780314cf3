"""Metrics of single roles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from croupier.master.allocator.queries import Rest
from croupier.master.core.state import State
from croupier.master.metrics.series.top_names import OTHER, Score, TopNames
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings
from croupier.process.metric_families import Family, exported_amount


@dataclass(frozen=True, slots=True)
class RoleSeries:
    """The roles that are exported at one scrape.

    Attributes:
        rest: of all other roles together.
    """

    state: State
    roles: tuple[Role, ...]
    rest: Rest

    def settings(self) -> Iterator[tuple[Role, RoleSettings]]:
        """Yield the settings of each role."""
        known = self.state.allocator.queries.roles()
        for role in self.roles:
            yield role, known.get(role) or RoleSettings()


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
    return RoleSeries(state, roles, queries.rest_of_roles(roles))


def _by_role(
    series: RoleSeries, value_of: Callable[[Role], Fraction], rest: float
) -> dict[str, float]:
    return {role: float(value_of(role)) for role in series.roles} | {OTHER: rest}


def _amounts(
    series: RoleSeries, amounts_of: Callable[[RoleSettings], Mapping[str, int]]
) -> dict[tuple[str, ...], float]:
    return {
        (role, resource): exported_amount(resource, milli)
        for role, settings in series.settings()
        for resource, milli in amounts_of(settings).items()
    }


ROLES: Final[tuple[Family[RoleSeries], ...]] = (
    Family(
        "role_dominant_share",
        "Dominant share of a role, offered and used; of the role other, of all roles that are not"
        " exported.",
        lambda series: _by_role(
            series, series.state.allocator.queries.role_share, series.rest.share
        ),
        ("role",),
    ),
    Family(
        "role_entitlement",
        "Dominant share that a role is entitled to; 0 while it has neither demand nor resources.",
        lambda series: _by_role(
            series, series.state.allocator.queries.role_entitlement, series.rest.entitlement
        ),
        ("role",),
    ),
    Family(
        "role_weight",
        "Weight of a role.",
        lambda series: {str(role): each.weight / 1000 for role, each in series.settings()},
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
