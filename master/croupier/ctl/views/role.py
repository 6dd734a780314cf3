"""Roles, as commands show them: their use, weights and quotas."""

from __future__ import annotations

from croupier.cli.table import Column, Table, amount, number
from croupier.cli.terminal import View, running
from croupier.model.durations import span_text


def resource_weights_text(role: View) -> str:
    """Return weights by resource as text, such as `cpus=2,gpus=0.5`."""
    return ",".join(f"{name}={weight:g}" for name, weight in role["resource_weights"].items())


def preemption_text(role: View) -> str:
    """Return `on` or `off`; empty if it is inherited."""
    return {None: "", True: "on", False: "off"}[role["preemption"]]


def min_run_text(role: View) -> str:
    """Return the time for which tasks are not preempted; empty if it is inherited."""
    return "" if role["min_run_s"] is None else span_text(role["min_run_s"])


def half_life_text(role: View) -> str:
    """Return the half-life of a role; empty if its past use does not count."""
    return span_text(role["half_life_s"]) if role["half_life_s"] else ""


def factor_text(role: View) -> str:
    """Return what the weight is multiplied by for past use; empty if that does not count."""
    return f"{role['past_use']['factor']:.3g}" if role["past_use"] else ""


def past_text(role: View) -> str:
    """Return what past use makes of the weight of a role; empty if it does not count."""
    past = role["past_use"]
    if not past:
        return ""
    return (
        f"{past['part']:.0%} of the past (half-life {half_life_text(role)}, including its share of "
        f"unused resources) against a share of {past['share']:.0%}: its weight counts "
        f"{past['factor']:.3g} times"
    )


def budget_text(role: View) -> str:
    """Return the budget with the part that is used; empty if there is none."""
    if not role["budget"]:
        return ""
    used = role["budget_used"]
    return str(role["budget"]) + ("" if used is None else f" ({100 * used:.0f}% used)")


def branch(role: str) -> str:
    """Return the last component of a role, indented by its depth."""
    above, _, last = role.rpartition("/")
    return "  " * (above.count("/") + 1) + last if above else last


def _part_text(role: View) -> str:
    return f"{role['past_use']['part']:.3f}" if role["past_use"] else ""


_ROLE = Column(
    "ROLE", lambda view: str(view["role"]), draw=lambda view: branch(view["role"]), is_id=True
)
_WEIGHT = number("WEIGHT", "weight", 2, form="g")
_SHARE = number("SHARE", "share", form=".3f")
_ENTITLED = number("ENTITLED", "entitlement", 1, form=".3f")

ROLES = Table(
    (
        _ROLE,
        _WEIGHT,
        _SHARE,
        _ENTITLED,
        amount("GUARANTEE", "guarantee", 5),
        amount("LIMIT", "limit", 6),
        number("FRAMEWORKS", "frameworks", 7),
        Column("RUNNING", lambda view: str(running(view)), is_number=True, rank=3),
        number("QUEUED", "queued", 3),
        amount("USED", "used", 4),
        amount("OFFERED", "offered", 8),
    ),
    "no roles have frameworks or settings",
)
WEIGHTS = Table(
    (
        _ROLE,
        _WEIGHT,
        Column("RESOURCES", resource_weights_text, rank=3),
        _SHARE,
        _ENTITLED,
        Column("HALF-LIFE", half_life_text, rank=4),
        Column("PAST", _part_text, is_number=True, rank=5),
        Column("FACTOR", factor_text, is_number=True, rank=3),
    ),
    "no roles have frameworks or settings",
)
QUOTAS = Table(
    (
        _ROLE,
        amount("GUARANTEE", "guarantee", 1),
        amount("LIMIT", "limit", 2),
        Column("PREEMPTION", preemption_text, rank=3),
        Column("MIN-RUN", min_run_text, rank=3, is_optional=True),
        Column("BUDGET", budget_text, rank=3, is_optional=True),
        amount("USED", "used", 4),
        amount("OFFERED", "offered", 5),
    ),
    "no role has a guarantee, a limit, a preemption setting or a budget",
)


def has_quota(role: View) -> bool:
    """Return whether the role has a guarantee, a limit, a preemption setting or a budget."""
    amounts = role["guarantee"]["milli"] or role["limit"]["milli"]
    others = ("preemption", "min_run_s", "budget")
    return bool(amounts) or any(role[name] is not None for name in others)
