"""Roles, as commands show them: their use, weights and quotas."""

from __future__ import annotations

from collections.abc import Mapping

from croupier.ctl.table import Column, Table, amount, number
from croupier.ctl.views.amounts import View


def resource_weights_text(weights: Mapping[str, float]) -> str:
    """Return weights by resource as text, such as `cpus=2,gpus=0.5`."""
    return ",".join(f"{name}={weight:g}" for name, weight in weights.items())


def preemption_text(preemption: bool | None) -> str:
    """Return `on` or `off`; empty if it is inherited."""
    return "" if preemption is None else "on" if preemption else "off"


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
