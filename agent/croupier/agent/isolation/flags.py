"""Flags of an agent for the isolation of its tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from croupier.agent.isolation.levels import AUTO, format_levels, parse_levels
from croupier.model.isolation import Limits
from croupier.model.task_limits import format_limits, parse_limits
from croupier.process.cli import read_by


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationFlags:
    """How an agent isolates tasks, and the limits of tasks that name none."""

    isolation: Annotated[
        tuple[str, ...], read_by(parse_levels, negative=(), show_default=format_levels)
    ] = (AUTO,)
    """Isolation of all tasks: some of process, cgroup, namespaces and container, separated by
    commas; the agent refuses to start if the machine lacks one. auto uses what the machine has,
    and none isolates nothing."""

    default_limits: Annotated[
        Limits, read_by(parse_limits, negative=(), show_default=format_limits)
    ] = Limits(pids=4096, files=65536)  # noqa: RUF009 - frozen
    """Limits of tasks that name none, such as 'pids:4096;files:65536;mem:1GB'."""

    cpu_quota: Literal["on", "off"] = "off"
    """Whether a task may never use more cpus than its resources state, even if others are idle.
    A task with a limit of cpus always keeps to that."""
