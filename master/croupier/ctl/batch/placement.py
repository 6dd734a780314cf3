"""The one place where tasks are handed to the cluster and taken back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from croupier.model.attributes import facts_of
from croupier.model.isolation import known_features
from croupier.sdk import (
    Conflict,
    Constraint,
    Framework,
    NotFound,
    Offer,
    Reason,
    Task,
    TaskState,
    TaskStatus,
    TaskVerdict,
    Unavailable,
)


class Placing(Framework):
    """A framework that queues tasks."""

    _queue: dict[str, tuple[Task, tuple[Constraint, ...]]]

    async def place(
        self, tasks: Sequence[Task], constraints: tuple[Constraint, ...]
    ) -> list[TaskVerdict]:
        """Queue tasks that have the same constraints."""
        self.__dict__.setdefault("_queue", {}).update({t.task_id: (t, constraints) for t in tasks})
        await self.revive()
        return [TaskVerdict(task.info.task_id) for task in tasks]

    async def take_back(self, task_ids: Sequence[str]) -> None:
        """End tasks that are still queued; an update tells that each is KILLED."""
        for task_id in task_ids:
            queued = self.__dict__.setdefault("_queue", {}).pop(task_id, None)
            if queued is not None:
                await self._report(queued[0], TaskState.KILLED)

    async def on_offers(self, offers: list[Offer]) -> None:
        """Launch queued tasks."""
        for offer in offers:
            free = offer.resources
            features = known_features(offer.isolation)
            facts = facts_of(offer.hostname, offer.attributes, features)
            taken = []
            for task, constraints in list(self.__dict__.setdefault("_queue", {}).values()):
                if task.resources <= free and all(c.holds(facts) for c in constraints):
                    free = free - task.resources
                    taken.append(task)
                    del self._queue[task.task_id]
                if len(taken) == 500:
                    break
            if not self._queue:
                await self.suppress()
            try:
                verdicts = await self.accept(offer, taken, refuse_s=0.0 if self._queue else 5.0)
            except (Conflict, NotFound, Unavailable):
                verdicts = [TaskVerdict(t.info.task_id, Conflict("offer")) for t in taken]
            for task, verdict in zip(taken, verdicts, strict=False):
                if verdict.error is not None:
                    await self._report(task, TaskState.UNKNOWN)

    async def _report(self, task: Task, state: TaskState) -> None:
        status = TaskStatus(
            self.framework_id or "", task.info.task_id, "", state,  # type: ignore[arg-type]
            reason=Reason.KILLED_BY_FRAMEWORK,
        )  # fmt: skip
        await self.on_update(replace(status))
