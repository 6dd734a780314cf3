"""What operators change of roles."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import nsmallest

from croupier.master.allocator.what_if import WhatIf
from croupier.master.core.effects import Effect, Happened, Save
from croupier.master.core.facts import RoleChanged
from croupier.master.core.on_allocation import rescind
from croupier.master.core.operator_command import OperatorCommand
from croupier.master.core.records import ForgetRole, RoleRecord
from croupier.master.core.role_status import RoleStatus, cluster_of, count_tasks, role_status
from croupier.master.core.roles import (
    RoleChange,
    changed_settings,
    check_against,
    check_settings,
    is_set,
)
from croupier.master.core.state import State
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings, is_within

# Of the roles whose entitlement moves with that of others, so many are told.
MAX_OTHERS = 500


@dataclass(frozen=True, slots=True)
class RolesMoved:
    """How roles stood before a change and stand after it, or would.

    Attributes:
        named: the roles that were to be changed, in that order, before and after.
        others: those whose entitlement moved with theirs, at most 500.
        untold: how many more there are of those.
    """

    named: tuple[tuple[RoleStatus, RoleStatus], ...]
    others: tuple[tuple[RoleStatus, RoleStatus], ...]
    untold: int


@dataclass(frozen=True, slots=True)
class UpdateRoles(OperatorCommand[RolesMoved]):
    """Change the settings of roles: all of the changes are made, or none.

    Attributes:
        dry_run: change nothing, and answer what the changes would do.
        force: also make changes that the present cluster contradicts.
        operator: the operator's address, for the log.
    """

    changes: tuple[RoleChange, ...]
    dry_run: bool = False
    force: bool = False
    operator: str = ""

    def execute(self, state: State, now: float) -> Generator[Effect, None, RolesMoved]:
        """Change the roles and return how they stood before and stand after it."""
        wanted = _judged(state, self)
        what_if = state.allocator.queries.what_if(wanted)
        others = [role for role in what_if.moved() if role not in wanted]
        named, told = list(wanted), nsmallest(MAX_OTHERS, others)
        tasks = count_tasks(state)
        stood = [role_status(state, role, tasks[role]) for role in named + told]
        if self.dry_run:
            pairs = [(each, _imagined(each, wanted, what_if)) for each in stood]
        else:
            for role, settings in wanted.items():
                yield from _set(state, role, settings, self)
            for role, settings in wanted.items():
                yield from _recall(state, role, settings, now)
            pairs = [(each, role_status(state, each.role, each.tasks)) for each in stood]
        before, after = tuple(pairs[: len(named)]), tuple(pairs[len(named) :])
        return RolesMoved(before, after, len(others) - len(told))


def _imagined(
    standing: RoleStatus, wanted: Mapping[Role, RoleSettings], what_if: WhatIf
) -> RoleStatus:
    return replace(
        standing,
        settings=wanted.get(standing.role, standing.settings),
        entitlement=what_if.entitlement(standing.role),
    )


def _judged(state: State, event: UpdateRoles) -> dict[Role, RoleSettings]:
    """The settings that the named roles are to have, if nothing speaks against them."""
    now = state.allocator.queries.roles()
    wanted = changed_settings(event.changes, now, state.initial_roles)
    together = {**now, **wanted}
    claims = check_settings(
        {r: each for r, each in together.items() if r not in wanted or not each.is_default}
    )
    if not event.force:
        check_against(wanted, now, cluster_of(state), claims)
    return wanted


def _set(state: State, role: Role, settings: RoleSettings, event: UpdateRoles) -> Iterator[Effect]:
    before = state.allocator.queries.roles().get(role, RoleSettings())
    if settings == before:
        return
    state.allocator.set_role(role, settings)
    if is_set(role, settings, state.initial_roles):
        yield Save(RoleRecord(role, settings))
    else:
        yield Save(ForgetRole(role))
    yield Happened(RoleChanged(role, str(before), str(settings), event.operator, event.force))


def _recall(state: State, role: Role, settings: RoleSettings, now: float) -> Iterator[Effect]:
    """Take back offers, the newest first, as far as the role is over its limit by them."""
    if not settings.limit:
        return
    within = [offer for offer in state.offers.values() if is_within(offer.role, role)]
    for offer in reversed(within):
        over = state.allocator.queries.over_limit(role)
        if not over:
            return
        if not over.isdisjoint(offer.resources.scalars):
            yield from rescind(state, offer, f"the limit of role {role} was lowered", now)


RoleCommand = UpdateRoles
