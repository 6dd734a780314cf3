"""The framework of `croupier run`: submits the copies of a job and follows their updates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from croupier.apps.controller.engine import CALL_TASKS, End, Engine, Handover
from croupier.apps.controller.outcomes import Outcome
from croupier.apps.run.addresses import Addresses
from croupier.apps.run.job import Job
from croupier.apps.run.output import Outputs
from croupier.apps.run.progress import Progress
from croupier.cli.flags import Target
from croupier.sdk import Reason, TaskState, TaskStatus

# Covers a restart of the master; no other program takes over this framework's id.
FAILOVER_S: Final = 60.0
_HAS_RUN = frozenset(
    {TaskState.RUNNING, TaskState.FINISHED, TaskState.FAILED, TaskState.KILLED, TaskState.KILLING}
)


class Launcher(Engine):
    """Launches the copies of one job. `over` is done when all have ended, or has the error."""

    def __init__(
        self,
        job: Job,
        target: Target,
        outputs: Outputs,
        addresses: Addresses,
        warn: Callable[[str], None],
    ) -> None:
        super().__init__(target, job.title, job.role, keep_s=FAILOVER_S, insecure=job.is_insecure)
        self._job, self._outputs, self._warn = job, outputs, warn
        self._addresses = addresses
        self.progress = Progress(job.count)
        # Since when copies wait for an agent, on the loop's clock.
        self.pending_since = 0.0

    def give_up(self) -> None:
        """Submit no more copies."""
        self.progress.give_up()
        self._settle()

    def kill_all(self) -> None:
        """Kill all submitted copies; the teardown kills those that this cannot."""
        for copy in self.progress.live:
            self.end_task(copy.task_id)

    def on_known(self, framework_id: str) -> None:
        """Name the copies."""
        self.progress.name_copies(self._job.stem(framework_id))

    def is_open(self, task_id: str) -> bool:
        """Return whether this is the latest try of a copy that has not ended."""
        return self.progress.find(task_id) is not None

    def take(self) -> list[Handover]:
        """Return copies that are pending: all of them, at first."""
        copies = self.progress.launch(CALL_TASKS)
        return [Handover(self._job.task(copy.task_id)) for copy in copies]

    def waiting(self) -> str:
        """Return which copies wait."""
        job, pending = self._job, self.progress.pending
        if pending and job.count == 1:
            return f"waiting to run the task ({job.unit})"
        text = f"waiting to run {pending} of {job.count} tasks ({job.unit} each)"
        return text if pending else ""

    def on_live(self, status: TaskStatus) -> None:
        """Follow the output of a task that runs, and apply its state."""
        if status.state is TaskState.STAGING:
            self.moved_at = asyncio.get_running_loop().time()
        self._apply_status(status)

    def on_end(self, end: End) -> None:
        """Apply the end of a try; raise the error of a master that will never take it."""
        if end.outcome is Outcome.REFUSED and end.error is not None:
            raise end.error
        status = end.status
        self._apply_status(status)
        if self.progress.find(status.task_id) is None:
            has_run = status.exit_code is not None or status.signal is not None
            is_launched = status.reason is not Reason.CONTAINER_LAUNCH_FAILED
            self._outputs.on_ended(status.task_id, has_run=has_run and is_launched)
        self._settle()

    def _apply_status(self, status: TaskStatus) -> None:
        copy = self.progress.find(status.task_id)
        assert copy is not None
        agent = self.agent(status.agent_id)
        if agent is not None:
            self._addresses.learn(agent.agent_id, agent.http_address)
        if status.state in _HAS_RUN and status.agent_id:
            self._outputs.follow(copy.index, status.agent_id, status.framework_id, status.task_id)
        was_pending = self.progress.pending
        warning = self.progress.on_status(status)
        if self.progress.pending and not was_pending:
            self.pending_since = asyncio.get_running_loop().time()
        if warning:
            self._warn(warning)

    def _settle(self) -> None:
        if self.progress.is_over:
            self.finish()
