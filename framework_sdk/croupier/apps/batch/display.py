"""The display of `croupier batch`: its plan, its progress, and its summary."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Self

from croupier.apps.batch.machine import FINAL, BatchTask, BatchTasks, NodeState
from croupier.apps.batch.plan import JobPlan
from croupier.cli.terminal import print_lines
from croupier.model.durations import duration_text
from croupier.model.printable import printable

if TYPE_CHECKING:
    from rich.progress import Progress


PLAIN_S: Final = 5.0
SHOWN: Final = 20
_WIDTH: Final = 72


class Display:
    """The progress of one run; a context manager that removes the bar."""

    def __init__(self, machine: BatchTasks, *, is_terminal: bool | None = None) -> None:
        self._machine = machine
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._bar: Progress | None = None
        self._shown, self._shown_at = "", time.monotonic()

    def __enter__(self) -> Self:
        if self._is_terminal:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                BarColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}", markup=False),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.add_task("", total=self._machine.plan.count)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def note(self, text: str) -> None:
        """Print a line that stays."""
        line = f"croupier batch: {text}"
        if self._bar is None:
            print_lines(line, file=sys.stderr)
        else:
            self._bar.console.print(printable(line), markup=False, highlight=False, soft_wrap=True)

    def show(self, running: int) -> None:
        """Show the progress; as plain lines, only if it changed, and every 5 s at most."""
        text = progress_text(self._machine, running)
        if self._bar is not None:
            ended = sum(self._machine.counts[state] for state in FINAL)
            self._bar.update(self._bar.task_ids[0], completed=ended, description=text)
        elif text != self._shown and time.monotonic() - self._shown_at >= PLAIN_S:
            self._shown, self._shown_at = text, time.monotonic()
            self.note(text)


def plan_lines(plan: JobPlan) -> Iterator[str]:
    """Return the plan: a line for each task of the file, in an order in which they can run."""
    job = plan.job
    steps = dict.fromkeys(node.step.name for node in plan.order)
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
        parts[0] += f" on each of {step.nodes} nodes" if step.gang else ""
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
    shown = 0
    for cause, count in causes.most_common(SHOWN):
        shown += count
        yield f"SKIPPED  {_tasks(count)}, because {cause} failed"
    if len(causes) > SHOWN:
        yield f"SKIPPED  {sum(causes.values()) - shown} more"
    yield f"{progress_text(machine, 0)}, in {duration_text(seconds)}"


def _failure(task: BatchTask) -> Iterator[str]:
    reason = task.reason or "for an unknown reason"
    agent = f", on {task.agent_id}" if task.agent_id else ""
    times = f", {task.failures} attempts" if task.failures > 1 else ""
    yield f"FAILED   {task.name}: {reason}{agent}{times}"
    for line in task.output.splitlines():
        yield f"    | {line}"


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"
