"""What is printed of a plan, and at the end of a run. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from croupier.apps.batch.machine import BatchTask, BatchTasks, NodeState
from croupier.apps.batch.plan import JobPlan
from croupier.model.durations import duration_text

SHOWN: Final = 20
_WIDTH: Final = 72


def plan_lines(plan: JobPlan) -> Iterator[str]:
    """Return the plan: a line for each task of the file, in an order in which they can run."""
    job = plan.job
    steps = dict.fromkeys(node.step.name for node in plan.order())
    arrays = sum(step.values is not None for step in job.steps)
    are_arrays = f", {arrays} of them {'an array' if arrays == 1 else 'arrays'}" if arrays else ""
    steps_text = "1 step" if len(job.steps) == 1 else f"{len(job.steps)} steps"
    yield f"{job.name}: {_tasks(plan.count)} in {steps_text}{are_arrays}"
    by_name = {step.name: step for step in job.steps}
    width = max(map(len, steps))
    for name in steps:
        step = by_name[name]
        spec = step.spec
        parts = [f"{step.count}x {spec.resources}" if step.values else str(spec.resources)]
        parts += [f"after {', '.join(step.after)}"] if step.after else []
        parts += [f"after any end of {', '.join(step.after_any)}"] if step.after_any else []
        parts += [f"{spec.retries} retries"] if spec.retries else []
        command = spec.shell or " ".join(spec.command)
        shown = " ".join(command.split())
        parts.append(shown if len(shown) <= _WIDTH else shown[: _WIDTH - 3] + "...")
        yield f"  {name:<{width}}  {'; '.join(parts)}"


def progress_text(machine: BatchTasks, running: int) -> str:
    """Return the progress, such as `12 of 200 done, 1 failed, 4 running`."""
    counts = machine.counts
    queued = max(counts[NodeState.ACTIVE] - running, 0)
    told = {
        "failed": counts[NodeState.FAILED],
        "skipped": counts[NodeState.SKIPPED],
        "running": running,
        "queued": queued,
        "to be tried again": counts[NodeState.PAUSED],
        "waiting": counts[NodeState.WAITING] + counts[NodeState.READY],
    }
    done = f"{counts[NodeState.DONE]} of {machine.plan.count} done"
    return ", ".join([done, *(f"{count} {what}" for what, count in told.items() if count)])


def summary_lines(machine: BatchTasks, seconds: float) -> Iterator[str]:
    """Return the end of a run: failures first, with their last lines, then the counts."""
    failed = [task for task in machine.tasks if task.state is NodeState.FAILED]
    for task in failed[:SHOWN]:
        yield from _failure(task)
    if len(failed) > SHOWN:
        yield f"FAILED   {len(failed) - SHOWN} more"
    causes = Counter(task.cause for task in machine.tasks if task.state is NodeState.SKIPPED)
    for cause, count in causes.most_common(SHOWN):
        yield f"SKIPPED  {_tasks(count)}, because {cause} failed"
    if len(causes) > SHOWN:
        yield f"SKIPPED  {sum(causes.values()) - _top(causes)} more"
    yield f"{progress_text(machine, 0)}, in {duration_text(seconds)}"


def _failure(task: BatchTask) -> Iterator[str]:
    reason = task.reason or "for an unknown reason"
    agent = f", on {task.agent_id}" if task.agent_id else ""
    times = f", {task.failures} attempts" if task.failures > 1 else ""
    yield f"FAILED   {task.node.name}: {reason}{agent}{times}"
    for line in task.output.splitlines():
        yield f"    | {line}"


def _top(causes: Counter[str]) -> int:
    return sum(count for _, count in causes.most_common(SHOWN))


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"
