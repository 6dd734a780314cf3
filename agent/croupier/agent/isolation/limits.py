"""The limits of a task: its own, what was accounted for it, and the agent's defaults."""

from __future__ import annotations

from typing import Final

from croupier.model.isolation import Limits
from croupier.model.task import TaskInfo

# The kernel cannot start a program in less.
LEAST_MEM: Final = 4_000


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
