"""Metrics sampled at each scrape. `metrics` has those that count events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import Final

from croupier.agent.core.state import AgentState
from croupier.agent.janitor import Janitor
from croupier.agent.link import Link
from croupier.agent.task_usage import TaskUsage
from croupier.model.health import PARTS
from croupier.model.ranges import count
from croupier.model.task import TaskState
from croupier.process.metric_families import Family, exported_amount


@dataclass(frozen=True, slots=True)
class AgentView:
    """What gauges are read from; the agent started at `started_s`, in seconds since 1970."""

    state: AgentState
    link: Link
    janitor: Janitor
    started_s: float
    usage: TaskUsage
    execs: Sized


def _resources(view: AgentView) -> Mapping[tuple[str, ...], float]:
    total = view.state.total
    amounts: dict[tuple[str, ...], float] = {}
    for state, resources in (("total", total), ("used", total - view.state.free)):
        for name in total.scalars:
            amounts[name, state] = exported_amount(name, resources[name])
        for name in total.ranges:
            amounts[name, state] = count(resources.ranges.get(name, ()))
    return amounts


def _tasks(view: AgentView) -> Mapping[str, float]:
    states = Counter(task.state for task in view.state.tasks.values())
    return {state.name: states[state] for state in TaskState}


def _problems(view: AgentView) -> Mapping[str, float]:
    failing = {problem.part for problem in view.state.health.problems}
    return {part: float(part in failing) for part in PARTS}


FAMILIES: Final[tuple[Family[AgentView], ...]] = (
    Family(
        "agent_registered",
        "1 if a master has registered the agent.",
        lambda view: float(view.link.is_registered),
    ),
    Family(
        "agent_rejected",
        "1 while masters reject the agent's credential.",
        lambda view: float(bool(view.link.rejection)),
    ),
    Family(
        "agent_start_time_seconds",
        "Start time of this agent in seconds since the Unix epoch.",
        lambda view: view.started_s,
    ),
    Family(
        "agent_unacknowledged_updates",
        "Status updates that are not acknowledged.",
        lambda view: view.state.unacknowledged(),
    ),
    Family(
        "agent_disk_used_ratio",
        "Used part of the disk of the work dir, from 0 to 1, at the last check.",
        lambda view: view.janitor.disk_used,
    ),
    Family(
        "agent_sandboxes_kept",
        "Sandboxes of tasks that the agent has forgotten.",
        lambda view: len(view.janitor),
    ),
    Family(
        "agent_sandbox_keep_seconds",
        "Time for which a sandbox is kept after its task; shorter on a fuller disk.",
        lambda view: view.janitor.allowed_s,
    ),
    Family(
        "agent_sandboxes_removed",
        "Sandboxes removed.",
        lambda view: view.janitor.removed,
        is_counter=True,
    ),
    Family(
        "agent_healthy",
        "1 if the agent takes launches, 0 while it has a problem.",
        lambda view: float(view.state.health.is_healthy),
    ),
    Family(
        "agent_problem",
        "1 for each part with a problem that prevents launches:"
        " work-dir, checkpoint, disk or launch.",
        _problems,
        ("part",),
    ),
    Family("agent_execs_running", "Commands that run beside tasks.", lambda view: len(view.execs)),
    Family(
        "agent_resources",
        "Resources of the agent; mem and disk in bytes, ranges as the count of their numbers.",
        _resources,
        ("resource", "state"),
    ),
    Family(
        "agent_tasks_cpu_seconds",
        "Time of all cpus that tasks have used; a task's own from its start.",
        lambda view: view.usage.cpu_s,
        is_counter=True,
    ),
    Family(
        "agent_tasks_memory_peak_bytes",
        "Sum of the memory peaks of live tasks, measured every 10 s.",
        lambda view: view.usage.memory_peak,
    ),
    Family(
        "agent_tasks_disk_bytes",
        "Size of the sandboxes of live tasks with a disk limit.",
        lambda view: view.usage.disk_bytes,
    ),
    Family("agent_tasks", "Tasks in the agent's records, by state.", _tasks, ("state",)),
)
