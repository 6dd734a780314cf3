"""Roles, as commands show them: their use, weights and quotas."""

from __future__ import annotations

from collections.abc import Mapping

from croupier.ctl.table import Column, Table, amount, number
from croupier.ctl.views.amounts import View, amount_view, scalars_view, shares_view
from croupier.model.scalar import format_milli
from croupier.v1 import operator_pb2 as pb
from croupier.wire.roles import settings_from_wire


def role_view(role: pb.RoleView) -> View:
    """Return one role with its subtree; `preemption` None is inherited."""
    settings = settings_from_wire(role.settings)
    return {
        "role": role.role,
        "weight": _weight(settings.weight),
        "weight_milli": settings.weight,
        "resource_weights": {n: _weight(w) for n, w in settings.resource_weights.items()},
        "guarantee": scalars_view(settings.guarantee),
        "limit": scalars_view(settings.limit),
        "preemption": settings.preemption,
        **shares_view(role),
        "used": amount_view(role.used),
        "offered": amount_view(role.offered),
        "frameworks": role.frameworks,
        "tasks": role.tasks,
    }


def role_moved_view(moved: pb.RoleMoved) -> View:
    """Return a role before and after a change of its settings or of another role's."""
    return {
        "role": moved.after.role,
        "before": role_view(moved.before),
        "after": role_view(moved.after),
    }


def resource_weights_text(weights: Mapping[str, float]) -> str:
    """Return weights by resource as text, such as `cpus=2,gpus=0.5`."""
    return ",".join(f"{name}={weight:g}" for name, weight in weights.items())


def preemption_text(preemption: bool | None) -> str:
    """Return `on` or `off`; empty if it is inherited."""
    return "" if preemption is None else "on" if preemption else "off"


def _weight(milli: int) -> float:
    return float(format_milli(milli))


def _branch(role: str) -> str:
    """Return the last component of a role, indented by its depth."""
    above, _, last = role.rpartition("/")
    return "  " * (above.count("/") + 1) + last if above else last


_ROLE = Column(
    "ROLE", lambda view: str(view["role"]), draw=lambda view: _branch(view["role"]), is_id=True
)
_WEIGHT = number("WEIGHT", "weight", form="g")
_SHARE = number("SHARE", "share", form=".3f")
_ENTITLED = number("ENTITLED", "entitlement", form=".3f")

ROLES = Table(
    (
        _ROLE,
        _WEIGHT,
        _SHARE,
        _ENTITLED,
        amount("GUARANTEE", "guarantee", 2),
        amount("LIMIT", "limit", 3),
        number("FRAMEWORKS", "frameworks", 4),
        number("TASKS", "tasks"),
        amount("USED", "used", 1),
        amount("OFFERED", "offered", 5),
    ),
    "no roles have frameworks or settings",
)
WEIGHTS = Table(
    (
        _ROLE,
        _WEIGHT,
        Column("RESOURCES", lambda view: resource_weights_text(view["resource_weights"])),
        _SHARE,
        _ENTITLED,
    ),
    "no roles have frameworks or settings",
)
QUOTAS = Table(
    (
        _ROLE,
        amount("GUARANTEE", "guarantee"),
        amount("LIMIT", "limit"),
        Column("PREEMPTION", lambda view: preemption_text(view["preemption"])),
        amount("USED", "used", 1),
        amount("OFFERED", "offered", 2),
    ),
    "no role has a guarantee, a limit or a preemption setting",
)


def has_quota(role: View) -> bool:
    """Return whether the role has a guarantee, a limit or a preemption setting."""
    amounts = role["guarantee"]["milli"] or role["limit"]["milli"]
    return bool(amounts) or role["preemption"] is not None
