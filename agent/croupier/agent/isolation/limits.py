"""The limits of a task: its own, what was accounted for it, and the agent's defaults."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.model.isolation import Limits
from croupier.model.resources import Resources
from croupier.model.scalar import format_scalar
from croupier.model.task import TaskInfo

# The kernel cannot start a program in less.
LEAST_MEM: Final = 4_000
_COUNTED: Final = ("pids", "files")


def limits_of(info: TaskInfo, defaults: Limits, *, has_quota: bool = False) -> Limits:
    """Return the limits to enforce on a task; 0 for what is not limited.

    Args:
        info: the task. Its own limits come first, then its resources of mem and disk.
        defaults: of the agent, for what the task names in neither.
        has_quota: whether the task is held to the cpus of its resources.
    """
    own, has = info.limits, info.resources
    mem = own.mem or has["mem"] or defaults.mem
    return Limits(
        cpus=own.cpus or (has["cpus"] if has_quota else 0) or defaults.cpus,
        mem=max(mem, LEAST_MEM) if mem else 0,
        disk=own.disk or has["disk"] or defaults.disk,
        pids=own.pids or defaults.pids,
        files=own.files or defaults.files,
    )


def parse_limits(text: str) -> Limits:
    """Read limits such as `pids:4096;mem:1GB`; an empty text sets none.

    Raises:
        InvalidRequest: if a name is unknown, or an amount is not a number in its range.
    """
    given = Resources.parse(text)
    names = [each.name for each in fields(Limits)]
    unknown = [*given.ranges, *given.sets, *(name for name in given.scalars if name not in names)]
    if unknown:
        raise InvalidRequest(f"there is no limit of {unknown[0]}; give some of {', '.join(names)}")
    parts = [name for name in _COUNTED if given[name] % 1000]
    if parts:
        raise InvalidRequest(f"the limit of {parts[0]} is a whole number")
    counted = {name: given[name] // 1000 for name in _COUNTED}
    limits = Limits(**{name: given[name] for name in given.scalars} | counted)
    limits.check()
    return limits


def format_limits(limits: Limits) -> str:
    """Return the text that `parse_limits` reads."""
    scale = dict.fromkeys(_COUNTED, 1000)
    amounts = {each.name: getattr(limits, each.name) for each in fields(limits)}
    return ";".join(
        f"{name}:{format_scalar(name, amount * scale.get(name, 1))}"
        for name, amount in amounts.items()
        if amount
    )
