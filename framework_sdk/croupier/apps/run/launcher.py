"""The framework of `croupier run`: submits the copies of a job and follows their updates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from croupier.apps.framework_credentials import framework_credentials
from croupier.apps.run.addresses import Addresses
from croupier.apps.run.job import Job
from croupier.apps.run.output import Outputs
from croupier.apps.run.progress import Copy, Progress
from croupier.cli.flags import Target
from croupier.sdk import (
    Conflict,
    CroupierError,
    Framework,
    NotFound,
    Reason,
    TaskState,
    TaskStatus,
    TaskVerdict,
    Unavailable,
)

# Covers a restart of the master; no other program takes over this framework's id.
FAILOVER_S: Final = 60.0
# The most copies that are submitted together.
AT_ONCE: Final = 1000
# The time after which copies that the master refused for lack of room are submitted again.
RETRY_S: Final = 1.0
_HAS_RUN = frozenset(
    {TaskState.RUNNING, TaskState.FINISHED, TaskState.FAILED, TaskState.KILLED, TaskState.KILLING}
)


class Launcher(Framework):
    """Launches the copies of one job. `over` is done when all have ended, or has the error."""

    def __init__(
        self,
        job: Job,
        target: Target,
        outputs: Outputs,
        addresses: Addresses,
        warn: Callable[[str], None],
    ) -> None:
        super().__init__(
            insecure=job.is_insecure,
            name=job.title,
            role=job.role,
            master=str(target),
            credentials=framework_credentials(target),
            failover_timeout_s=FAILOVER_S,
        )
        self._job, self._outputs, self._warn = job, outputs, warn
        self._addresses = addresses
        self._again: asyncio.Task[None] | None = None
        self.progress = Progress(job.count)
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # On the loop's clock: when a copy got an agent last, and since when copies wait for one.
        self.launched_at = self.pending_since = 0.0

    def give_up(self) -> None:
        """Submit no more copies."""
        if self._again is not None:
            self._again.cancel()
        self.progress.give_up()
        self._settle()

    async def kill_all(self) -> None:
        """Kill all submitted copies; the teardown kills those that this call cannot."""
        kills = (self.kill(copy.task_id) for copy in self.progress.live)
        await asyncio.gather(*kills, return_exceptions=True)

    async def on_subscribed(self, framework_id: str) -> None:
        """Submit the copies that are pending: all of them, at first."""
        self.progress.name_copies(self._job.stem(framework_id))
        await self._guarded(self._submit_pending())

    async def on_update(self, status: TaskStatus) -> None:
        """Follow the output of a task that runs, and apply its state."""
        await self._guarded(self._update(status))

    async def on_error(self, error: CroupierError) -> None:
        """Do nothing: `run` raises the error."""

    async def _submit_pending(self) -> None:
        while self.progress.unsubmitted:
            copies = self.progress.launch(min(AT_ONCE, self._job.tasks_in_a_call))
            tasks = [self._job.task(copy.task_id) for copy in copies]
            try:
                verdicts = await self.submit(tasks)
            except Unavailable:
                # The tasks may be queued: ask the master.
                await self.reconcile([task.task_id for task in tasks])
                return
            put_back = [self._apply(c, v) for c, v in zip(copies, verdicts, strict=True)]
            if any(put_back):
                self._again = asyncio.create_task(self._submit_later())
                return
        self._settle()

    async def _submit_later(self) -> None:
        """Submit what the master could not queue: it may have room by now."""
        await asyncio.sleep(RETRY_S)
        await self._guarded(self._submit_pending())

    def _apply(self, copy: Copy, verdict: TaskVerdict) -> bool:
        """Apply a verdict; return whether the copy is pending again. Raise a final error."""
        error = verdict.error
        if error is None:
            return False
        if not isinstance(error, (Conflict, NotFound, Unavailable)):
            raise error
        if self.progress.find(verdict.task_id) is copy:
            with self._timing_wait():
                self.progress.put_back(copy)
        return True

    async def _update(self, status: TaskStatus) -> None:
        copy = self.progress.find(status.task_id)
        if copy is None:
            return
        if status.state is TaskState.STAGING:
            self.launched_at = asyncio.get_running_loop().time()
        agent = self.agent(status.agent_id)
        if agent is not None:
            self._addresses.learn(agent.agent_id, agent.http_address)
        if status.state in _HAS_RUN and status.agent_id:
            self._outputs.follow(copy.index, status.agent_id, status.framework_id, status.task_id)
        with self._timing_wait():
            warning_of = self.progress.on_status(status)
        if warning_of:
            self._warn(warning_of)
        if self.progress.find(status.task_id) is None:
            has_run = status.exit_code is not None or status.signal is not None
            is_launched = status.reason is not Reason.CONTAINER_LAUNCH_FAILED
            self._outputs.on_ended(status.task_id, has_run=has_run and is_launched)
            if status.state in (TaskState.DROPPED, TaskState.UNKNOWN):
                await self._submit_pending()
        self._settle()

    @contextmanager
    def _timing_wait(self) -> Iterator[None]:
        """Set `pending_since` if copies become pending in this context."""
        was_pending = self.progress.pending
        yield
        if self.progress.pending and not was_pending:
            self.pending_since = asyncio.get_running_loop().time()

    async def _guarded(self, handling: Coroutine[Any, Any, None]) -> None:
        """Run a handler; its error ends the command through `over`."""
        try:
            await handling
        except Exception as error:
            if not self.over.done():
                self.over.set_exception(error)

    def _settle(self) -> None:
        if self.progress.is_over and not self.over.done():
            self.over.set_result(None)
