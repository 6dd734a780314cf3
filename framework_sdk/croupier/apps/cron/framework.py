"""The framework of `croupier cron`: performs what the board decides, until a signal.

Rule: a failed commit ends the command, as memory would be ahead of the disk.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from croupier.apps.controller.engine import Engine, Handover
from croupier.apps.controller.outcomes import Outcome, own_end
from croupier.apps.controller.process import first, run_application
from croupier.apps.controller.store import locked
from croupier.apps.controller.waiting import WaitWatch
from croupier.apps.cron.core.board import Board
from croupier.apps.cron.core.job import Effect, KeepRun, Kill, LaunchRun, RunState, ScheduledRun
from croupier.apps.cron.cron_file import CronFile
from croupier.apps.cron.listing import first_line, line_of
from croupier.apps.cron.state_file import StateFile, opened, state_path
from croupier.cli.flags import Target
from croupier.cli.signals import EndSignals
from croupier.cli.terminal import print_lines
from croupier.model.errors import Conflict
from croupier.process.logging import replace_standard_error
from croupier.sdk import CroupierError, Reason, Removed, TaskState, TaskStatus

# Tasks run on for this long without cron.
FAILOVER_S: Final = 7 * 86_400.0
# A leap of the clock is noticed within this time.
LOOK_S: Final = 5.0
BACK_S: Final = 5.0
PATIENCE_S = 5.0


class CronFramework(Engine):
    """Runs the jobs of one file."""

    def __init__(self, file: CronFile, target: Target, state: StateFile) -> None:
        framework_id = state.fact("framework_id")
        super().__init__(target, file.name, file.role, framework_id=framework_id, keep_s=FAILOVER_S)
        self._file, self._state = file, state
        self._kept = {job.name: job.history for job in file.jobs.values()}
        self._board = Board()
        self._changed = asyncio.Event()
        self._launches: deque[ScheduledRun] = deque()

    def load(self) -> None:
        """Load the stored state.

        Raises StateError if the state is damaged, or the disk does not take a commit.
        """
        self._decide(self._board.load(self._file.jobs.values(), self._state.load(), time.time()))
        runs = [run for run in self._board.runs_with_task() if run not in self._launches]
        self.ask_about(run.task_id for run in runs)
        for run in runs:
            if run.is_replaced:
                self.end_task(run.task_id)

    def forsake(self) -> None:
        """Record that the master has removed the framework, and so killed its tasks.

        What this hands over is found again by the next `load`.
        """
        self._decide(self._board.on_removed(time.time()))
        self._state.keep(framework_id="")

    async def keep_time(self) -> None:
        """Decide on times as they come, until cancelled."""
        loop = asyncio.get_running_loop()
        last_wall, last_loop = time.time(), loop.time()
        while True:
            now, loop_now = time.time(), loop.time()
            back_s = (loop_now - last_loop) - (now - last_wall)
            if back_s > BACK_S:
                _print(f"the clock went back by {back_s:.0f} s; no time runs twice")
            last_wall, last_loop = now, loop_now
            self._decide(self._board.on_time(now))
            wake_at = self._board.wake_at()
            wait_s = LOOK_S if wake_at is None else min(LOOK_S, max(0.0, wake_at - time.time()))
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()

    def on_known(self, framework_id: str) -> None:
        """Store the id."""
        if self._state.fact("framework_id") != framework_id:
            self._state.keep(framework_id=framework_id)

    def is_open(self, task_id: str) -> bool:
        """Return whether this is the task of a run that has not ended."""
        return self._board.has_task(task_id)

    def take(self) -> list[Handover]:
        """Return the tasks that were decided on, but for those to be replaced by now."""
        runs = [run for run in self._launches if self._board.is_current(run)]
        self._launches.clear()
        jobs = self._file.jobs
        return [
            (task, jobs[run.job].spec.conditions())
            for run in runs
            for task in self._file.tasks(run)
        ]

    def waiting(self) -> str:
        """Return whether a task, or this command, waits for the master."""
        is_placing = any(r.state is RunState.PLACING for r in self._board.runs_with_task())
        return "waiting" if is_placing or self.framework_id is None else ""

    def on_live(self, status: TaskStatus) -> None:
        """Record that a task runs."""
        if status.state is TaskState.RUNNING:
            self._decide(self._board.on_running(status.task_id, time.time()))

    def on_end(self, status: TaskStatus, outcome: Outcome, error: CroupierError | None) -> None:
        """Record the end of a task."""
        now = time.time()
        if status.state is TaskState.UNKNOWN and outcome is not Outcome.REFUSED:
            self._decide(self._board.on_unknown(status.task_id, now))
        else:
            detail = detail_of(status) if error is None else str(error)
            code = status.exit_code if outcome is not Outcome.LOST else None
            self._decide(self._board.on_end(status.task_id, outcome, now, detail, code))
        self._changed.set()

    def _decide(self, effects: Iterable[Effect]) -> None:
        """Commit what was decided, and order the rest."""
        ordered = list(effects)
        self._state.commit(ordered, self._kept)
        for effect in ordered:
            if isinstance(effect, KeepRun):
                job = self._file.jobs.get(effect.run.job)
                _print(line_of(effect.run, None if job is None else job.schedule))
            elif isinstance(effect, LaunchRun):
                self._launches.append(effect.run)
                self.wake()
            elif isinstance(effect, Kill):
                self.end_task(effect.run.task_id)


def detail_of(status: TaskStatus) -> str:
    """Return how a task ended, for the history; nothing if it finished."""
    if status.state is TaskState.FINISHED:
        return ""
    parts = [status.state.name]
    if status.reason is not Reason.NONE and status.reason.name != status.state.name:
        parts.append(status.reason.name)
    text = " ".join(parts) + (f": {status.message}" if status.message else "")
    return own_end(status) or text


def run_cron(file: CronFile, target: Target, chosen: Path | None) -> int:
    """Run the jobs of `file` until a signal; return the exit code.

    Raises:
        Conflict: if another copy runs, or another file has this name.
        InvalidRequest: if the state is damaged.
        CroupierError: if the master refuses, or the state cannot be written.
    """
    replace_standard_error(lambda lost: _print(f"{lost} lines could not be written"))
    path = state_path(file.name, chosen)
    with (
        locked(path.with_name(path.name + ".lock"), f"the state {path} of {file.path}"),
        opened(path, may_create=True) as state,
    ):
        _claim(state, file)
        return run_application(target, lambda: _run(file, target, state))


def _claim(state: StateFile, file: CronFile) -> None:
    """Refuse the state of another file of the same name that still exists."""
    own, known = str(file.path.resolve()), state.fact("file")
    if known and known != own and Path(known).exists():
        raise Conflict(
            f"the name {file.name} is that of {known}: give {file.path} another `name`, or --state"
        )
    if known != own:
        state.keep(file=own)


async def _run(file: CronFile, target: Target, state: StateFile) -> int:
    _print(first_line(file.jobs.values(), int(time.time())))
    with closing(EndSignals()) as signals:
        while True:
            framework = CronFramework(file, target, state)
            framework.load()
            try:
                await _serve(framework, target, signals)
            except Removed:
                framework.forsake()
                _print("the master had removed the framework: beginning a new one")
                continue
            return 0


async def _serve(framework: CronFramework, target: Target, signals: EndSignals) -> None:
    """Run a framework until a signal or an error."""
    watch = WaitWatch(framework, target, _print, PATIENCE_S)
    async with framework.serving(framework.keep_time(), watch.run(tells_soon=False)):
        await first(framework.over, framework.own(signals.first()))
        if framework.over.done():
            framework.over.result()


def _print(line: str) -> None:
    print_lines(f"croupier cron: {line}", file=sys.stderr)
