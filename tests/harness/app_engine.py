"""Statuses of tasks, and engines of applications whose calls to the master are recorded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from croupier.apps.controller.engine import Engine
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.task import TaskState, TaskStatus
from croupier.sdk import Constraint, CroupierError, Gang, Task, TaskVerdict


def status_of(
    state: TaskState, task_id: str = "run-0", agent_id: str = "A1", **more: Any
) -> TaskStatus:
    """Return an update of a task; `more` are further fields of it."""
    return TaskStatus(FrameworkId("F"), TaskId(task_id), AgentId(agent_id), state, **more)


class RecordedEngine(Engine):
    """An engine whose calls are recorded, and answered by the test.

    Attributes:
        calls: the name of each call, with the ids of its tasks.
        submitted: the ids of the tasks of each SUBMIT, with its constraints.
        fails: errors that the next calls raise, in order.
        errors: those in the verdicts on tasks, by id; each once.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.calls: list[tuple[str, ...]] = []
        self.submitted: list[tuple[list[str], tuple[Constraint, ...]]] = []
        self.fails: list[CroupierError] = []
        self.errors: dict[str, CroupierError] = {}

    def ids(self, name: str) -> list[str]:
        """Return the ids of the tasks of all calls of this name."""
        return [task_id for each, *ids in self.calls if each == name for task_id in ids]

    async def submit(
        self,
        tasks: Iterable[Task],
        role: str | None = None,
        constraints: Iterable[Constraint] | None = None,
        max_per_agent: int | None = None,
        group: str | None = None,
        gang: Gang | None = None,
    ) -> list[TaskVerdict]:
        listed = [task.task_id for task in tasks]
        self.submitted.append((listed, tuple(constraints or ())))
        return self.answered("submit", *listed)

    async def withdraw(self, task_ids: Iterable[str]) -> list[TaskVerdict]:
        return self.answered("withdraw", *task_ids)

    async def kill(self, task_id: str, grace_s: float | None = None) -> None:
        self.answered("kill", task_id)

    async def reconcile(self, task_ids: Iterable[str] | None = None) -> None:
        self.answered("reconcile", *(task_ids or ()))

    async def tell(self, task_id: str, state: TaskState, **more: Any) -> None:
        """Deliver an update of a task."""
        await self.on_update(status_of(state, task_id, **more))

    def answered(self, name: str, *ids: str) -> list[TaskVerdict]:
        """Record a call, and return the verdicts on its tasks."""
        self.calls.append((name, *ids))
        if self.fails:
            raise self.fails.pop(0)
        return [TaskVerdict(TaskId(each), self.errors.pop(each, None)) for each in ids]
