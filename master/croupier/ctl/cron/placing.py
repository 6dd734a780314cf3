"""Placement of single tasks: they wait until an offer has room for them."""

from __future__ import annotations

from typing import Any

from croupier.sdk import (
    Conflict,
    Constraint,
    CroupierError,
    Demand,
    Framework,
    NotFound,
    Offer,
    Resources,
    Task,
    Unavailable,
    fit,
)

_SOMETHING = Resources.parse("cpus:1")


Kind = tuple[Resources, tuple[Constraint, ...]]


class PlacingFramework(Framework):
    """Launches the tasks that it is given, on declared demand: tasks of one kind after the other.

    A deriving class overrides `on_refused`, for a task that no agent will run, and `on_unsure`,
    for one that the master may have accepted.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._pending: dict[str, tuple[Task, Kind]] = {}

    @property
    def pending(self) -> int:
        """The number of tasks that wait for an offer."""
        return len(self._pending)

    async def on_refused(self, task_id: str, error: CroupierError) -> None:
        """Handle a task that the master refuses."""
        raise NotImplementedError

    async def on_unsure(self, task_id: str) -> None:
        """Handle a task of a call that was not answered."""
        raise NotImplementedError

    async def hand_over(self, task: Task, conditions: tuple[Constraint, ...]) -> None:
        """Launch a task as soon as there is room."""
        self._pending[task.task_id] = (task, (task.resources, conditions))
        await self._declare()

    async def take_back(self, task_id: str) -> bool:
        """Launch a task no more; return whether it was waiting. Otherwise it needs a kill."""
        if self._pending.pop(task_id, None) is None:
            return False
        await self._declare()
        return True

    async def on_offers(self, offers: list[Offer]) -> None:
        """Launch tasks of the kind that was declared."""
        for offer, chosen in fit(offers, self._of_first_kind()):
            if chosen:
                await self._launch(offer, [self._pending.pop(task.task_id) for task in chosen])
            else:
                await self.decline(offer)
        await self._declare()

    async def _launch(self, offer: Offer, pending: list[tuple[Task, Kind]]) -> None:
        try:
            verdicts = await self.accept(offer, [task for task, _ in pending])
        except Unavailable:
            for task, _ in pending:
                await self.on_unsure(task.task_id)
            return
        for entry, verdict in zip(pending, verdicts, strict=True):
            if isinstance(verdict.error, (Conflict, NotFound, Unavailable)):
                self._pending[verdict.task_id] = entry
            elif verdict.error is not None:
                await self.on_refused(verdict.task_id, verdict.error)

    async def _declare(self) -> None:
        tasks = self._of_first_kind()
        try:
            if not tasks:
                await self.demands([Demand(_SOMETHING, 0)])
                return
            unit, conditions = self._pending[tasks[0].task_id][1]
            await self.demand(unit, len(tasks), conditions)
        except Unavailable:
            return  # the next SUBSCRIBE has it

    def _of_first_kind(self) -> list[Task]:
        first = next((kind for _, kind in self._pending.values()), None)
        return [task for task, kind in self._pending.values() if kind == first]
