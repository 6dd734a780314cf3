"""Arguments for roles and demands: a short form for one, and a full form for several."""

from __future__ import annotations

from collections.abc import Iterable

from croupier.model.attributes import Constraint
from croupier.model.demand import Demand, check_demands
from croupier.model.errors import InvalidRequest
from croupier.model.ids import DEFAULT_ROLE, Role, check_role, check_roles
from croupier.model.resources import Resources


def roles_of(role: str | None, roles: Iterable[str] | None) -> tuple[Role, ...]:
    """Return the roles of a framework, given as one or several.

    Raises:
        InvalidRequest: if it gave both, one is illegal or given twice, or there are over 32.
    """
    if roles is None:
        return (check_role(DEFAULT_ROLE if role is None else role),)
    if role is not None:
        raise InvalidRequest("give one role or several, not both")
    if isinstance(roles, str):
        raise InvalidRequest("roles are a list; for a single one use role=...")
    return check_roles(roles)


def one_demand(
    unit: Resources | None, count: int | None, constraints: Iterable[Constraint] | None
) -> tuple[Demand, ...]:
    """Return the demand for one shape, or none.

    Raises:
        InvalidRequest: if no offer can ever meet it.
    """
    if unit is None:
        if count is not None or constraints:
            raise InvalidRequest("a count and constraints need a demand")
        return ()
    return check_demands([Demand(unit, count, tuple(constraints or ()))])


def demands_of(
    one: tuple[Demand, ...], several: Iterable[Demand], roles: tuple[Role, ...]
) -> tuple[Demand, ...]:
    """Return the demands of a framework, given as one shape or several.

    Raises:
        InvalidRequest: if it gave both, or one is invalid.
    """
    checked = check_demands(several, roles)
    if one and checked:
        raise InvalidRequest("give one demand or several, not both")
    return one or checked
