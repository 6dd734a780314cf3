"""Operator commands for roles."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import nsmallest

from croupier.master.allocator.entitlements import WhatIf
from croupier.master.allocator.past_use import PastUse
from croupier.master.allocator.queries import RoleStatus
from croupier.master.core import roles
from croupier.master.core.authorisation import finds_in_role, require
from croupier.master.core.budgets import review_budgets
from croupier.master.core.effects import Effect, Happened, Save
from croupier.master.core.events import OperatorCommand
from croupier.master.core.facts import RoleChanged
from croupier.master.core.on_accounting import apply_past_use, past_after
from croupier.master.core.on_allocation import rescind
from croupier.master.core.records import ForgetRole, RoleRecord
from croupier.master.core.state import State
from croupier.model.access import Action, role_object
from croupier.model.errors import NotFound
from croupier.model.ids import Role
from croupier.model.principal import ANONYMOUS, Principal
from croupier.model.roles import RoleSettings, is_within

# The longest `RolesMoved.others`.
MAX_OTHERS = 500


@dataclass(frozen=True, slots=True)
class RolesMoved:
    """Roles before and after a change.

    Attributes:
        named: the changed roles, in the order of the command.
        others: roles whose entitlement changes with theirs, at most 500.
        omitted: the number of such roles beyond `others`.
    """

    named: tuple[tuple[RoleStatus, RoleStatus], ...]
    others: tuple[tuple[RoleStatus, RoleStatus], ...]
    omitted: int


@dataclass(frozen=True, slots=True)
class UpdateRoles(OperatorCommand[RolesMoved]):
    """Change the settings of roles; all changes are applied, or none.

    Attributes:
        dry_run: change nothing, and answer what the changes would do.
        force: also make changes that the present cluster contradicts.
    """

    changes: tuple[roles.RoleChange, ...]
    dry_run: bool = False
    force: bool = False
    operator: str = ""
    caller: Principal = ANONYMOUS

    def execute(self, state: State, now: float) -> Generator[Effect, None, RolesMoved]:
        """Change the roles; return those affected roles before and after that the caller may view.

        Raises:
            NotFound: if the caller may neither view nor change a role.
            PermissionDenied: if the caller may not change a role.
            InvalidRequest, Conflict: if the changes contradict each other or the cluster.
        """
        permissions = state.permissions(self.caller)
        for change in self.changes:
            if not finds_in_role(permissions, Action.CHANGE_ROLES, change.role):
                raise NotFound(f"no role {change.role[:80]!r}")
            require(permissions, Action.CHANGE_ROLES, role_object(change.role))
        wanted = _checked(state, self)
        queries = state.allocator.queries
        past = past_after(state, wanted)
        what_if = queries.what_if(wanted, past)
        moved = (role for role in what_if.moved() if role not in wanted)
        others = [each for each in moved if permissions.decide(Action.VIEW, role_object(each))]
        shown = [*wanted, *nsmallest(MAX_OTHERS, others)]
        tasks = roles.count_tasks(state)
        before = [queries.role_status(role, *tasks.of(role)) for role in shown]
        if self.dry_run:
            after = [_predicted(each, wanted, what_if, past) for each in before]
        else:
            for role, settings in wanted.items():
                yield from _set(state, role, settings, self)
            apply_past_use(state)
            for role, settings in wanted.items():
                yield from _rescind_over(state, role, settings, now)
            yield from review_budgets(state)
            after = [queries.role_status(each.role, each.tasks, each.queued) for each in before]
        pairs, named = tuple(zip(before, after, strict=True)), len(wanted)
        omitted = named + len(others) - len(shown)
        return RolesMoved(pairs[:named], pairs[named:], omitted)


def _predicted(
    status: RoleStatus,
    wanted: Mapping[Role, RoleSettings],
    what_if: WhatIf,
    past: Mapping[Role, PastUse],
) -> RoleStatus:
    return replace(
        status,
        settings=wanted.get(status.role, status.settings),
        entitlement=what_if.entitlement(status.role),
        past=past.get(status.role),
    )


def _checked(state: State, event: UpdateRoles) -> dict[Role, RoleSettings]:
    """Return the new settings of the roles; raises CroupierError if they contradict anything."""
    now = state.allocator.queries.roles()
    wanted = roles.changed_settings(event.changes, now, state.initial_roles)
    together = {**now, **wanted}
    claims = roles.check_settings(
        {r: each for r, each in together.items() if r not in wanted or not each.is_default}
    )
    if not event.force:
        roles.check_against(wanted, now, roles.cluster_of(state), claims)
    return wanted


def _set(state: State, role: Role, settings: RoleSettings, event: UpdateRoles) -> Iterator[Effect]:
    before = state.allocator.queries.roles().get(role, RoleSettings())
    if settings == before:
        return
    state.allocator.set_role(role, settings)
    if roles.is_set(role, settings, state.initial_roles):
        yield Save(RoleRecord(role, settings))
    else:
        yield Save(ForgetRole(role))
    yield Happened(RoleChanged(role, str(before), str(settings), event.operator, event.force))


def _rescind_over(state: State, role: Role, settings: RoleSettings, now: float) -> Iterator[Effect]:
    """Rescind offers, the newest first, while the role exceeds its new limit."""
    if not settings.limit:
        return
    within = [offer for offer in state.offers.values() if is_within(offer.role, role)]
    for offer in reversed(within):
        over = state.allocator.queries.over_limit(role)
        if not over:
            return
        if not over.isdisjoint(offer.resources.scalars):
            yield from rescind(state, offer, f"the limit of role {role} was lowered", now)
