"""The framework that runs workers as tasks.

Rule: `plan` is the one place where workers are submitted and withdrawn. The master places them.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from croupier.futures.board import Worker
from croupier.futures.exchange import Exchange
from croupier.futures.shape import Shape
from croupier.futures.start import PAUSE_S, ExecutorSettings
from croupier.sdk import (
    Conflict,
    CroupierError,
    Framework,
    NotFound,
    PreemptRequest,
    Task,
    TaskState,
    TaskStatus,
    Unavailable,
)

# Time for which tasks outlive the connection to a master. A client that is killed leaves no
# workers anyway: they end when their connection ends.
FAILOVER_S: Final = 120.0


class Fleet(Framework):
    """Submits the workers that are missing."""

    def __init__(
        self,
        settings: ExecutorSettings,
        exchange: Exchange,
        make_task: Callable[[str, Shape], Task],
    ) -> None:
        super().__init__(
            name=settings.name,
            role=settings.role,
            master=settings.master,
            credentials=settings.credentials,
            insecure=settings.insecure,
            failover_timeout_s=FAILOVER_S,
        )
        self._exchange, self._make_task = exchange, make_task
        # Task ids that are unique in the cluster are easier to name in commands.
        self._tag = secrets.token_hex(4)
        self._numbers = itertools.count(1)

    async def plan(self, missing: Mapping[Shape, int], unneeded: Sequence[Worker]) -> None:
        """Submit so many further workers of each shape, and withdraw queued ones."""
        try:
            for shape, count in missing.items():
                await self._submit_workers(shape, count)
            await self._withdraw_workers(unneeded)
        except (Conflict, NotFound, Unavailable):
            await asyncio.sleep(PAUSE_S)  # the next plan tries it again
        except CroupierError as error:
            self._exchange.on_fleet_failed(error)

    async def on_update(self, status: TaskStatus) -> None:
        """Report that a worker was placed, or its task has ended."""
        is_unknown = status.state is TaskState.UNKNOWN and status.decided_in_s is None
        if status.state.is_terminal or is_unknown:
            self._exchange.on_task_ended(status)
        elif status.agent_id:
            self._exchange.on_placed(status.task_id)

    async def on_preempt(self, request: PreemptRequest) -> None:
        """End the workers after the calls that they run; the master kills those that are late."""
        self._exchange.on_preempted(tuple(request.task_ids))

    async def on_error(self, error: CroupierError) -> None:
        """Do nothing: `run` raises the error."""

    async def _submit_workers(self, shape: Shape, count: int) -> None:
        numbers = itertools.islice(self._numbers, count)
        tasks = [self._make_task(f"worker-{self._tag}-{number}", shape) for number in numbers]
        for task in tasks:
            self._exchange.board.add_worker(task.task_id, shape)
        try:
            verdicts = await self.submit(tasks, constraints=shape.constraints)
        except Unavailable:
            # The master may have the tasks. Those that run connect; updates tell about the others.
            with suppress(Conflict, NotFound):
                await self.reconcile([task.task_id for task in tasks])
            return
        errors: list[CroupierError] = []
        for verdict in verdicts:
            if verdict.error is not None:
                self._exchange.forget(verdict.task_id)
                errors.append(verdict.error)
        if errors:
            raise errors[0]

    async def _withdraw_workers(self, workers: Sequence[Worker]) -> None:
        for verdict in await self.withdraw([worker.task_id for worker in workers]):
            # A worker that was placed meanwhile ends when it was idle for long.
            if not isinstance(verdict.error, Conflict):
                self._exchange.forget(verdict.task_id)
