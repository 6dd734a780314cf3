"""Why tasks failed, and what they wrote last; kept with the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from croupier.apps.batch.machine import Machine, NodeState, Task
from croupier.apps.batch.state import Row

_KEPT = (NodeState.ACTIVE, NodeState.DONE, NodeState.FAILED)


@dataclass(frozen=True, slots=True)
class Report:
    """The latest failed attempt of a task.

    Attributes:
        agent_id: where it ran; empty if that is unknown.
        reason: why it failed, such as `exit code 3`.
        output: its last lines; empty if they are unknown.
    """

    agent_id: str = ""
    reason: str = ""
    output: str = ""


NO_REPORT = Report()


class Reports:
    """The reports of all tasks of a run."""

    def __init__(self, machine: Machine, rows: Iterable[Row] = ()) -> None:
        """Take over the reports of stored tasks."""
        named = {row.name: row for row in rows if row.reason}
        self._reports = {
            task.node.index: Report(row.agent_id, row.reason, row.output)
            for task in machine.tasks
            if (row := named.get(task.node.name)) is not None
        }

    def of(self, task: Task) -> Report:
        """Return the report of a task; an empty one if no attempt failed."""
        return self._reports.get(task.node.index, NO_REPORT)

    def set(self, task: Task, agent_id: str, reason: str) -> None:
        """Record a failed attempt."""
        self._reports[task.node.index] = Report(agent_id, reason)

    def add_output(self, task: Task, output: str) -> None:
        """Record the last lines of the failed attempt."""
        self._reports[task.node.index] = replace(self.of(task), output=output)

    def forget(self, task: Task) -> None:
        """Drop the report of a task that succeeded."""
        self._reports.pop(task.node.index, None)

    def row(self, task: Task) -> Row:
        """Return what is stored of a task that was launched."""
        report = self.of(task)
        return Row(
            task.node.name,
            task.state if task.state in _KEPT else NodeState.WAITING,
            task.launches,
            task.failures,
            task.drops,
            report.agent_id,
            report.reason,
            report.output,
        )
