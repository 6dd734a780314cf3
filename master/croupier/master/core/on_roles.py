"""What operators change of roles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from croupier.master.allocator.limits import counted
from croupier.master.core.effects import Answer, Effect, Happened, Save
from croupier.master.core.events import UpdateRoles
from croupier.master.core.facts import RoleChanged
from croupier.master.core.on_allocation import rescind
from croupier.master.core.records import ForgetRole, RoleRecord
from croupier.master.core.roles import changed_settings, check_against, check_settings, is_set
from croupier.master.core.standing import RoleStanding, cluster_of, stand
from croupier.master.core.state import State
from croupier.model.errors import CroupierError, shortened
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings, is_within


@dataclass(frozen=True, slots=True)
class RolesMoved:
    """How all roles stood before a change and stand after it, or would.

    Attributes:
        named: the roles that were to be changed, in that order.
    """

    named: tuple[Role, ...]
    before: Mapping[Role, RoleStanding]
    after: Mapping[Role, RoleStanding]


def on_update_roles(state: State, event: UpdateRoles, now: float) -> Iterator[Effect]:
    """Make all of the changes or none; answer with how roles moved, or an error."""
    try:
        wanted = _judged(state, event)
    except CroupierError as refusal:
        yield Answer(event.request, shortened(refusal))
        return
    before = stand(state)
    if event.dry_run:
        after = stand(state, wanted)
    else:
        for role, settings in wanted.items():
            yield from _set(state, role, settings, event)
        for role, settings in wanted.items():
            yield from _recall(state, role, settings, now)
        after = stand(state)
    yield Answer(event.request, RolesMoved(tuple(wanted), before, after))


def _judged(state: State, event: UpdateRoles) -> dict[Role, RoleSettings]:
    """The settings that the named roles are to have, if nothing speaks against them."""
    now = state.allocator.roles()
    wanted = changed_settings(event.changes, now, state.initial_roles)
    check_settings({role: each for role, each in {**now, **wanted}.items() if not each.is_default})
    if not event.force:
        check_against(wanted, now, cluster_of(state))
    return wanted


def _set(state: State, role: Role, settings: RoleSettings, event: UpdateRoles) -> Iterator[Effect]:
    before = state.allocator.roles().get(role, RoleSettings())
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
    pool = state.allocator.tree.roles.get(role)
    if pool is None or not settings.limit:
        return
    for offer in reversed(list(state.offers.values())):
        over = {n for n, most in settings.limit.items() if counted(pool, n) > most}
        if not over:
            return
        if is_within(offer.role, role) and not over.isdisjoint(offer.resources.scalars):
            yield from rescind(state, offer, f"the limit of role {role} was lowered", now)
