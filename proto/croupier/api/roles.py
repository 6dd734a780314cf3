"""Roles: their use, weights and quotas."""

from __future__ import annotations

from typing import TypedDict

from croupier.api.amounts import Amount, ScalarAmounts, scalars_view
from croupier.api.objects import as_object, makes
from croupier.model.scalar import format_milli
from croupier.v1 import operator_pb2 as pb
from croupier.wire.roles import settings_from_wire


class Role(TypedDict):
    """A role with its subtree: `ads` includes the resources of `ads/prod`.

    Attributes:
        share: its dominant share of the cluster, from 0 to 1.
        share_ppm: the same in millionths.
        entitlement: the share that it is due under unlimited demand.
        entitlement_ppm: the same in millionths.
        weight_milli: the weight in thousandths.
        resource_weights: by resource, what the weight is multiplied by for it.
        guarantee: what it is allocated before roles that have met their guarantee.
        limit: what it never holds more of; a resource that is not named has no limit.
        preemption: None is inherited.
        frameworks: the number of its frameworks.
        tasks: the number of its tasks that have not ended.
        queued: those of them that wait for an agent.
    """

    role: str
    weight: float
    weight_milli: int
    resource_weights: dict[str, float]
    guarantee: ScalarAmounts
    limit: ScalarAmounts
    preemption: bool | None
    share: float
    share_ppm: int
    entitlement: float
    entitlement_ppm: int
    used: Amount
    offered: Amount
    frameworks: int
    tasks: int
    queued: int


class RoleMoved(TypedDict):
    """A role before and after a change of its settings or of another role's."""

    role: str
    before: Role
    after: Role


class RolesChange(TypedDict):
    """The effect of a change of roles.

    Attributes:
        dry_run: nothing was changed.
        roles: the named roles, and those whose entitlement changed.
        others: the number of further roles whose entitlement changed.
    """

    dry_run: bool
    roles: list[RoleMoved]
    others: int


@makes(Role)
def role_view(role: pb.RoleView) -> Role:
    """Return one role with its subtree."""
    settings = settings_from_wire(role.settings)
    return as_object(
        Role,
        role,
        weight=_weight(settings.weight),
        weight_milli=settings.weight,
        resource_weights={n: _weight(w) for n, w in settings.resource_weights.items()},
        guarantee=scalars_view(settings.guarantee),
        limit=scalars_view(settings.limit),
        preemption=settings.preemption,
    )


@makes(RoleMoved)
def role_moved_view(moved: pb.RoleMoved) -> RoleMoved:
    """Return a role before and after a change of its settings or of another role's."""
    return as_object(RoleMoved, moved, role=moved.after.role)


def _weight(milli: int) -> float:
    return float(format_milli(milli))
