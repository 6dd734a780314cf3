"""The framework of `croupier run`: accepts offers, launches copies, follows their updates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from croupier.ctl.flags import Target
from croupier.ctl.run.addresses import Addresses
from croupier.ctl.run.job import Job
from croupier.ctl.run.output import Outputs
from croupier.ctl.run.progress import Copy, Progress
from croupier.model.limits import DEFAULT_REFUSE_S
from croupier.sdk import (
    Conflict,
    Credentials,
    CroupierError,
    Framework,
    NotFound,
    Offer,
    Reason,
    TaskState,
    TaskStatus,
    TaskVerdict,
    Unavailable,
)

# Covers a restart of the master; no other program takes over this framework's id.
FAILOVER_S: Final = 60.0
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
            credentials=_credentials(target),
            failover_timeout_s=FAILOVER_S,
            demand=job.unit,
            demand_count=job.count,
            constraints=job.constraints,
        )
        self._job, self._outputs, self._warn = job, outputs, warn
        self._addresses = addresses
        self._agents: dict[str, str] = {}
        self.progress = Progress(job.count)
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # On the loop's clock: the last launch, and the time since which copies are pending.
        self.launched_at = self.pending_since = 0.0

    def give_up(self) -> None:
        """Launch no more copies."""
        self.progress.give_up()
        self._settle()

    async def kill_all(self) -> None:
        """Kill all launched copies; the teardown kills those that this call cannot."""
        kills = (self.kill(copy.task_id) for copy in self.progress.live)
        await asyncio.gather(*kills, return_exceptions=True)

    async def on_offers(self, offers: list[Offer]) -> None:
        """Launch as many pending copies as fit on `offers`."""
        await self._guarded(self._use(offers))

    async def on_update(self, status: TaskStatus) -> None:
        """Follow the output of a task that runs, and apply its state."""
        await self._guarded(self._update(status))

    async def on_error(self, error: CroupierError) -> None:
        """Do nothing: `run` raises the error."""

    async def _use(self, offers: list[Offer]) -> None:
        pending = await asyncio.gather(*(self._use_one(offer) for offer in offers))
        if any(pending):
            await self._update_demand()
        self._settle()

    async def _use_one(self, offer: Offer) -> bool:
        """Launch copies on `offer`; return whether any of them is pending again."""
        most = min(self.progress.pending, self._job.tasks_in_a_call)
        copies = self.progress.launch(self._job.unit.units_within(offer.resources, most))
        if not copies:
            await self._decline(offer)
            return False
        self._addresses.learn(offer.agent_id, offer.http_address)
        for copy in copies:
            self._agents[copy.task_id] = offer.agent_id
        tasks = [self._job.task(copy.task_id) for copy in copies]
        refuse_s = 0.0 if self.progress.pending else DEFAULT_REFUSE_S
        try:
            verdicts = await self.accept(offer, tasks, refuse_s=refuse_s)
        except Unavailable:
            # The tasks may run: ask the master.
            await self.reconcile([task.task_id for task in tasks])
            return False
        self.launched_at = asyncio.get_running_loop().time()
        put_back = [self._apply(c, v) for c, v in zip(copies, verdicts, strict=True)]
        return any(put_back)

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

    async def _decline(self, offer: Offer) -> None:
        try:
            await self.decline(offer)
        except (Conflict, NotFound, Unavailable):
            return  # the offer has ended already

    async def _update(self, status: TaskStatus) -> None:
        copy = self.progress.find(status.task_id)
        if copy is None:
            return
        if status.state in _HAS_RUN:
            agent_id = self._agents[status.task_id]
            self._outputs.follow(copy.index, agent_id, status.framework_id, status.task_id)
        with self._timing_wait():
            warning_of = self.progress.on_status(status)
        if warning_of:
            self._warn(warning_of)
        if self.progress.find(status.task_id) is None:
            has_run = status.exit_code is not None or status.signal is not None
            is_launched = status.reason is not Reason.CONTAINER_LAUNCH_FAILED
            self._outputs.on_ended(status.task_id, has_run=has_run and is_launched)
            if status.state in (TaskState.DROPPED, TaskState.UNKNOWN):
                await self._update_demand()
        self._settle()

    async def _update_demand(self) -> None:
        """Set the demand to the number of pending copies.

        Handlers run one at a time, so no launch is under way that would lower it again.
        """
        try:
            await self.demand(self._job.unit, self.progress.pending, self._job.constraints)
        except Unavailable:
            return  # the next SUBSCRIBE has it

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


def _credentials(target: Target) -> Credentials:
    found = target.credentials().security
    return Credentials(found.ca, found.cert, found.key, found.name, found.token, found.token_file)
