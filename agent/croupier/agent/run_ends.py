"""The ends of runs whose shims have ended: each is reported once nothing is left of the run.

Rule: what a shim has left is killed before the end is reported, by what isolates the run and by the
marks of its processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from croupier.agent.core.events import NO_ENDING, Ending, Exited, LaunchFailed, Started
from croupier.agent.core.tasks import Key
from croupier.agent.isolation.isolator import Layers, completed
from croupier.agent.sandbox import Sandboxes
from croupier.agent.shim import run_file
from croupier.agent.shim.orphans import sweep
from croupier.agent.shim.run_file import RunRecord
from croupier.agent.shim.shim_process import ShimProcess
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

RunEvent = Started | LaunchFailed | Exited

# Reading the end that a shim has written is retried for this time if descriptors are short. Then
# the end counts as unknown.
READ_S = 60.0
READ_AGAIN_S = 0.5


class RunEnds:
    """The runs whose shims have ended, and whose ends are not reported yet.

    Attributes:
        end_companions: kills what runs beside a task that ends, and calls back later; returns False
            if there is nothing.
    """

    def __init__(
        self,
        runs: Path,
        sandboxes: Sandboxes,
        isolation: Layers,
        report: Callable[[RunEvent], None],
        told: Callable[[], None],
    ) -> None:
        """Call `report` with each end, and `told` after it; `runs` has the run files."""
        self._runs, self._sandboxes, self._isolation = runs, sandboxes, isolation
        self._report, self._told = report, told
        self.end_companions: Callable[[Key, Callable[[], None]], bool] = lambda *_: False
        self._loop = asyncio.get_running_loop()
        self._sweeper = ThreadPoolExecutor(1, "sweeper")
        self._retries: dict[str, asyncio.TimerHandle] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def close(self) -> None:
        """Report no further ends."""
        for timer in self._retries.values():
            timer.cancel()
        self._sweeper.shutdown(wait=False, cancel_futures=True)

    def read(self, key: Key, running: ShimProcess) -> None:
        """Report the end that the shim has written."""
        self._count += 1
        self._read(key, running, self._loop.time() + READ_S)

    def decide(self, key: Key, running: ShimProcess, record: RunRecord) -> None:
        """Report the end that a record states."""
        self._count += 1
        self._decide(key, running, record)

    def kill_rest(self, key: Key, run: str, *sessions: int) -> None:
        """Kill what is left of a run; blocks, for 10 s at most."""
        sandboxes = [self._sandboxes.path_of(key)]
        try:
            self._isolation.kill(run)
        finally:
            sweep([str(self._runs / run)], sandboxes, sessions)

    def _read(self, key: Key, running: ShimProcess, until: float) -> None:
        self._retries.pop(running.run, None)
        try:
            record = run_file.read_path(self._runs / running.run)
        except OSError as error:
            _log.error("run_file_unreadable", run=running.run, error=str(error))
            if self._loop.time() < until and not isinstance(error, FileNotFoundError):
                timer = self._loop.call_later(READ_AGAIN_S, self._read, key, running, until)
                self._retries[running.run] = timer
                return
            record = RunRecord()
        self._decide(key, running, record)

    def _decide(self, key: Key, running: ShimProcess, record: RunRecord) -> None:
        """Report the end once the companions have ended."""
        # They may write until they have ended.
        decide = partial(self._decide_alone, key, running, replace(record, is_silent=False))
        if not self.end_companions(key, decide):
            self._decide_alone(key, running, record)

    def _decide_alone(self, key: Key, running: ShimProcess, record: RunRecord) -> None:
        if not (running.pid or running.failed) and record.task is not None:
            # The shim was killed before it could report the start over the pipe.
            running.pid = record.task.pid
            self._report(Started(key, running.pid))
        if not running.failed and record.end is not None and running.pid:
            if self.is_empty(running.run):
                if record.is_silent:
                    self._sandboxes.silent.add(key)
                self._note_end(self.exited(key, running.run, record))
            else:
                _log.warning("processes_left", run=running.run)
                self._sweep(key, running, record)
        elif not running.failed:
            _log.error("shim_killed", run=running.run, shim=running.shim, pid=running.pid)
            self._sweep(key, running, record)
        else:
            self._note_end(None)

    def _sweep(self, key: Key, running: ShimProcess, record: RunRecord) -> None:
        """Kill the processes that a shim has left, off the loop; then report the end."""

        def swept(future: Future[None]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is not None:
                _log.error("sweep_failed", run=running.run, error=repr(error))
            with suppress(RuntimeError):
                # If the loop has ended, the next agent sweeps again.
                self._loop.call_soon_threadsafe(self._note_swept, key, running, record)

        # The shim may have forked the task before it was killed: the child begins in its session.
        session = running.pid or running.shim
        done = self._sweeper.submit(self.kill_rest, key, running.run, session)
        done.add_done_callback(swept)

    def _note_swept(self, key: Key, running: ShimProcess, record: RunRecord) -> None:
        if record.end is not None and running.pid:
            self._note_end(self.exited(key, running.run, record))
        elif running.pid:
            self._note_end(Exited(key, unknown=True, ending=self.ending_of(running.run)))
        else:
            cause = "the shim of a task was killed before it started it"
            self._note_end(LaunchFailed(key, "its shim was killed", cause=cause))

    def exited(self, key: Key, run: str, record: RunRecord) -> Exited:
        """Return the end that a record tells, with all that is known of it."""
        assert record.end is not None
        known = self.ending_of(run)
        ending = Ending(completed(known.usage, record.usage), known.exceeded, known.notes)
        return Exited(key, record.end.exit_code, record.end.signal, ending=ending)

    def ending_of(self, run: str) -> Ending:
        """Return what isolators know of a run; the end is reported even if they cannot tell."""
        try:
            return self._isolation.end(run)
        except OSError as error:
            _log.error("usage_unreadable", run=run, error=str(error))
            return NO_ENDING

    def is_empty(self, run: str) -> bool:
        """Return whether no process is left of a run, as far as its isolation knows."""
        try:
            return self._isolation.is_empty(run)
        except OSError as error:
            _log.error("usage_unreadable", run=run, error=str(error))
            return False

    def _note_end(self, end: RunEvent | None) -> None:
        """Report the end of a task whose shim has ended; None: it was reported before."""
        self._count -= 1
        if end is not None:
            self._report(end)
        self._told()
