"""The framework of `croupier cron`: performs what the board decides.

Rule: effects are committed before a task is handed over, and an update is acknowledged after its
commit. A failed commit ends the command, as memory would be ahead of the disk.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final

from croupier.apps.cron.core.board import Board, Outcome
from croupier.apps.cron.core.effects import Effect, KeepRun, Kill, Launch
from croupier.apps.cron.core.run import Run, RunState
from croupier.apps.cron.cron_file import CronFile
from croupier.apps.cron.outcomes import Ended, Unknown, read_update
from croupier.apps.cron.state_file import FRAMEWORK_ID, StateFile
from croupier.apps.framework_credentials import framework_credentials
from croupier.cli.flags import Target
from croupier.sdk import (
    Conflict,
    Constraint,
    CroupierError,
    Framework,
    NotFound,
    Task,
    TaskStatus,
    TaskVerdict,
    Unavailable,
)

# Tasks run on for this long without cron.
FAILOVER_S: Final = 7 * 86_400.0
# A leap of the clock is noticed within this time.
LOOK_S: Final = 5.0
BACK_S: Final = 5.0


class CronFramework(Framework):
    """Runs the jobs of one file. `over` has the error that ends the command."""

    def __init__(
        self,
        file: CronFile,
        target: Target,
        state: StateFile,
        tell: Callable[[Run], None],
        warn: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(
            name=file.name,
            role=file.role,
            master=str(target),
            credentials=framework_credentials(target),
            framework_id=state.fact(FRAMEWORK_ID) or None,
            failover_timeout_s=FAILOVER_S,
        )
        self._file, self._state, self._tell, self._warn = file, state, tell, warn
        self._clock = clock
        self._kept = {job.name: job.history for job in file.jobs}
        self._board = Board()
        # Tasks that an earlier run of this program, or an unanswered call, may have handed over.
        self._unsure: set[str] = set()
        self._kills: set[str] = set()
        # Why tasks were refused; perhaps because the master knows them already.
        self._refusals: dict[str, str] = {}
        self._is_known = asyncio.Event()
        self._changed, self._has_work = asyncio.Event(), asyncio.Event()
        self._orders: deque[Launch | Kill] = deque()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def placing(self) -> frozenset[str]:
        """The tasks that wait to be placed."""
        waiting = (r for r in self._board.runs_with_task() if r.state is RunState.PLACING)
        return frozenset(run.task_id for run in waiting)

    def load(self) -> None:
        """Take up the stored state.

        Raises:
            InvalidRequest: if the state is damaged.
            Unavailable: if the disk does not take a commit.
        """
        self._decide(self._board.load(self._file.jobs, self._state.load(), self._clock()))
        launched = {order.run.task_id for order in self._orders}
        self._unsure = {run.task_id for run in self._board.runs_with_task()} - launched

    def forsake(self) -> None:
        """Record that the master has removed the framework, and so killed its tasks.

        What this hands over is found again by the next `load`.
        """
        self._decide(self._board.on_removed(self._clock()))
        self._state.keep_fact(FRAMEWORK_ID, "")

    async def keep_time(self) -> None:
        """Decide on times as they come, until cancelled."""
        loop = asyncio.get_running_loop()
        last_wall, last_loop = self._clock(), loop.time()
        while True:
            now, loop_now = self._clock(), loop.time()
            back_s = (loop_now - last_loop) - (now - last_wall)
            if back_s > BACK_S:
                self._warn(f"the clock went back by {back_s:.0f} s; no time runs twice")
            last_wall, last_loop = now, loop_now
            await self._guarded(self._on_time(now))
            wake_at = self._board.wake_at()
            wait_s = LOOK_S if wake_at is None else min(LOOK_S, max(0.0, wake_at - self._clock()))
            await self._changed_within(wait_s)

    async def work(self) -> None:
        """Hand over and kill tasks in the order in which that was decided, until cancelled.

        These calls wait while no master can be reached; times are decided on meanwhile.
        """
        await self._is_known.wait()
        while True:
            await self._guarded(self._ask())
            while self._orders:
                await self._guarded(self._carry_out())
            if self._refusals.keys() & self._unsure:
                continue
            self._has_work.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._has_work.wait()

    async def on_subscribed(self, framework_id: str) -> None:
        """Keep the id before a task is handed over, and ask about tasks of before."""
        await self._guarded(self._on_subscribed(framework_id))

    async def on_update(self, status: TaskStatus) -> None:
        """Record what became of a task; its end is acknowledged afterwards."""
        await self._guarded(self._on_update(status))

    async def on_error(self, error: CroupierError) -> None:
        """Do nothing: `run` raises the error."""

    async def _on_subscribed(self, framework_id: str) -> None:
        if self._state.fact(FRAMEWORK_ID) != framework_id:
            self._state.keep_fact(FRAMEWORK_ID, framework_id)
        self._is_known.set()

    async def _on_time(self, now: float) -> None:
        self._decide(self._board.on_time(now))

    async def _on_update(self, status: TaskStatus) -> None:
        now = self._clock()
        match read_update(status):
            case None:
                return
            case Ended(outcome, detail, code):
                self._decide(self._board.on_update(status.task_id, outcome, now, detail, code))
                if outcome is not Outcome.RUNNING:
                    self._kills.discard(status.task_id)
            case Unknown() if status.task_id in self._refusals:
                detail = self._refusals.pop(status.task_id)
                self._decide(self._board.on_update(status.task_id, Outcome.FAILED, now, detail))
            case Unknown():
                self._decide(self._board.on_unknown(status.task_id, now))
        self._changed.set()

    def _decide(self, effects: Iterable[Effect]) -> None:
        """Commit what was decided, and order the rest."""
        ordered = list(effects)
        self._state.commit(ordered, self._kept)
        for effect in ordered:
            if isinstance(effect, KeepRun):
                self._tell(effect.run)
            elif isinstance(effect, Launch | Kill):
                self._orders.append(effect)
                self._has_work.set()

    async def _ask(self) -> None:
        """Ask about tasks that may have been handed over, and kill those to be replaced."""
        asked, self._unsure = self._unsure, set()
        try:
            await self.reconcile(asked)
        except Unavailable:
            self._unsure |= asked
            return
        for run in self._board.runs_with_task():
            if run.is_replaced and run.task_id not in self._kills | asked:
                await self._kill(run)

    async def _carry_out(self) -> None:
        """Carry out the first orders: one kill, or all launches up to the next kill."""
        if isinstance(self._orders[0], Kill):
            await self._kill(self._orders.popleft().run)
            return
        kinds: dict[tuple[Constraint, ...], list[Task]] = {}
        while self._orders and isinstance(self._orders[0], Launch):
            run = self._orders.popleft().run
            if self._board.is_current(run):
                conditions = self._file.tasks[run.job].conditions()
                kinds.setdefault(conditions, []).append(self._file.task(run))
        for conditions, tasks in kinds.items():
            await self._submit(tasks, conditions)

    async def _submit(self, tasks: list[Task], conditions: tuple[Constraint, ...]) -> None:
        try:
            verdicts = await self.submit(tasks, constraints=conditions)
        except Unavailable:
            self._unsure.update(task.task_id for task in tasks)
            return
        for verdict in verdicts:
            self._apply(verdict)

    def _apply(self, verdict: TaskVerdict) -> None:
        """Ask about a task that the master did not take: it may have it already."""
        if verdict.error is None:
            return
        self._unsure.add(verdict.task_id)
        if not isinstance(verdict.error, Conflict | Unavailable):
            self._refusals[verdict.task_id] = str(verdict.error)
            self._has_work.set()

    async def _kill(self, run: Run) -> None:
        try:
            await self.kill(run.task_id)
        except NotFound:
            self._unsure.add(run.task_id)
        except Unavailable:
            return  # `_ask` tries again
        self._kills.add(run.task_id)

    async def _changed_within(self, seconds: float) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _guarded(self, handling: Coroutine[Any, Any, None]) -> None:
        """Run a handler; its error ends the command through `over`."""
        try:
            await handling
        except Exception as error:
            if not self.over.done():
                self.over.set_exception(error)
            raise
