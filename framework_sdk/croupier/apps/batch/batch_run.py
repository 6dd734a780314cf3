"""`croupier batch`: from the job file and the kept state to the exit code."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing, suppress
from functools import partial
from typing import Final

from croupier.apps.batch.display import Display, progress_text, summary_lines
from croupier.apps.batch.machine import BatchTask, BatchTasks, NodeState, Row
from croupier.apps.batch.plan import JobPlan
from croupier.apps.batch.runner import Runner
from croupier.apps.batch.state import BatchState
from croupier.apps.controller.outcomes import Outcome
from croupier.apps.controller.process import first
from croupier.apps.controller.waiting import WaitWatch
from croupier.cli.connection import connected
from croupier.cli.flags import Target
from croupier.cli.signals import SIGNAL_BASE, EndSignals
from croupier.cli.terminal import print_lines
from croupier.model.errors import Conflict, CroupierError, NotFound, Removed
from croupier.sdk import TaskStatus

SHOW_S: Final = 0.2
PATIENCE_S: Final = 3.0
TAILS_S: Final = 10.0
FAILED: Final = 1
_LOST: Final = "its result is lost: the cluster has removed the run"


class BatchCommand:
    """One process that runs, or continues, a job."""

    def __init__(
        self,
        plan: JobPlan,
        state: BatchState,
        target: Target,
        *,
        resume: bool = False,
        restart: bool = False,
        retry_failed: bool = False,
        keep_s: float = 3600.0,
    ) -> None:
        """Take the options of the command line; the cluster keeps the tasks for `keep_s`."""
        self._plan, self._state, self._target, self._keep_s = plan, state, target, keep_s
        self._resume, self._restart, self._retry_failed = resume, restart, retry_failed
        self._began = time.monotonic()

    async def run(self) -> int:
        """Run to the end; return the exit code.

        Raises:
            Conflict: if a run is unfinished, and no option says what becomes of it.
            StateError: if the state cannot be read or written.
            CroupierError: if the master refuses the job, or cannot be reached at the beginning.
        """
        rows = await self._stored_rows()
        machine = BatchTasks(self._plan, rows)
        if machine.is_complete:
            self._state.keep(framework_id="", is_complete="1")
            return self._finish(machine)
        async with connected(self._target):
            pass  # fails at once if there is no master, and it does not admit us
        while True:
            runner = self._runner(machine)
            try:
                code = await self.serve(runner)
            except (Removed, NotFound):
                if runner.was_subscribed or not self._state.fact("framework_id"):
                    raise
                self._lose(machine)
            else:
                return code or self._finish(machine)

    async def _stored_rows(self) -> list[Row]:
        """Return the tasks of the run that is stored, if it is to be continued."""
        state, digest = self._state, self._plan.digest()
        framework_id = state.fact("framework_id")
        rows = state.tasks()
        has_begun = bool(rows or framework_id)
        if not has_begun or (state.fact("is_complete") and not self._resume):
            state.begin(digest)
            return []
        if self._restart:
            await self._forget(framework_id)
            state.begin(digest)
            return []
        done = sum(row.state is NodeState.DONE for row in rows)
        if not self._resume:
            raise Conflict(
                f"a run of this job is unfinished ({done} of {self._plan.count} tasks done):"
                " --resume continues it, --restart begins again"
            )
        if state.fact("digest") != digest:
            raise Conflict(
                "the names or dependencies of the tasks have changed since this run began:"
                " --restart begins again"
            )
        if self._retry_failed and any(row.state is NodeState.FAILED for row in rows):
            state.keep(is_complete="")
            rows = [_again(row) for row in rows]
            state.save(rows)
        return rows

    async def _forget(self, framework_id: str) -> None:
        """End the tasks of the run that is stored."""
        if not framework_id:
            return
        runner = self._runner(machine := BatchTasks(self._plan))
        machine.is_stopped = True
        with suppress(Removed, NotFound):
            async with runner.serving():
                await runner.over  # with nothing to run, it is over once the master has admitted it
                await runner.stop(teardown=True)

    def _runner(self, machine: BatchTasks) -> Runner:
        return Runner(
            machine,
            self._state,
            self._target,
            framework_id=self._state.fact("framework_id"),
            keep_s=self._keep_s,
        )

    def _lose(self, machine: BatchTasks) -> None:
        """Fail the tasks whose results were lost with the framework."""
        lost = machine.active
        for task in lost:
            task.report("", _LOST)
            machine.on_end(task, Outcome.FAILED)
        self._state.keep(framework_id="")
        self._state.save(lost)

    async def serve(self, runner: Runner) -> int:
        """Serve the framework until the run is over; return 0, or the exit code of a signal."""
        with closing(EndSignals()) as signals, Display(runner.machine) as display:
            runner.on_failed = partial(_on_failed, display, runner)
            watch = WaitWatch(runner, self._target, display.note, PATIENCE_S)
            async with runner.serving(_show(display, runner), watch.run()):
                interrupt = runner.own(signals.first())
                await first(interrupt, runner.over)
                if interrupt.done():
                    display.note("stopping; a second signal leaves the tasks running")
                    await self._stopped(runner, signals)
                    display.note(_stopped_text(runner.machine))
                    return SIGNAL_BASE + interrupt.result()
                runner.over.result()
                display.show(0)
                await runner.tails_read(TAILS_S)
                self._state.keep(framework_id="", is_complete="1")
                await runner.close(teardown=True)
                return 0

    async def _stopped(self, runner: Runner, signals: EndSignals) -> None:
        """End the tasks; a second signal, or a long wait, leaves them to `--resume`."""
        again, ending = runner.own(signals.second()), runner.own(runner.stop_tasks())
        graces = [step.spec.grace_s for step in self._plan.job.steps]
        await asyncio.wait(
            {again, ending}, timeout=max(graces) + 10, return_when=asyncio.FIRST_COMPLETED
        )
        if ending.done() and runner.was_subscribed:
            ending.result()
            runner.end()
            with suppress(CroupierError):
                await runner.stop(teardown=True)
                self._state.keep(framework_id="")

    def _finish(self, machine: BatchTasks) -> int:
        print_lines(*summary_lines(machine, time.monotonic() - self._began))
        return 0 if machine.counts[NodeState.DONE] == self._plan.count else FAILED


def _stopped_text(machine: BatchTasks) -> str:
    left = machine.counts[NodeState.ACTIVE]
    if not left:
        return f"stopped, {progress_text(machine, 0)}; --resume continues this run"
    tasks = "1 task goes" if left == 1 else f"{left} tasks go"
    return f"{tasks} on in the cluster; --resume continues this run"


def _again(row: Row) -> Row:
    """Return a failed task as one that is to be run again."""
    if row.state is not NodeState.FAILED:
        return row
    return Row(row.name, NodeState.WAITING, row.launches, 0, 0)


async def _show(display: Display, runner: Runner) -> None:
    """Show the progress until cancelled."""
    while True:
        display.show(len(runner.running))
        await asyncio.sleep(SHOW_S)


def _on_failed(
    display: Display, runner: Runner, task: BatchTask, status: TaskStatus | None, reason: str
) -> None:
    if task.state is NodeState.FAILED:
        display.note(f"{task.name} failed: {reason}")
        runner.read_tail(task, status)
    else:
        left = task.node.step.spec.retries - task.failures + 1
        times = "1 retry is" if left == 1 else f"{left} retries are"
        display.note(f"{task.name}: {reason}; {times} left")
