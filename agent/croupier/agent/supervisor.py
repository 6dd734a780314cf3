"""The processes of tasks: each under a shim, which is started, signalled and waited for.

Rule: the agent signals shims alone, and each through a pidfd that was opened while the shim
was known to live: as a child that is not reaped, or as the holder of its run file's lock.

A task's process is started by its shim and ends with no help of the agent; so it outlives
the agent, and the next one on the work dir adopts it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGTERM, Signals

from croupier.agent.core.events import Adopted, Exited, LaunchFailed, Started, Vanished
from croupier.agent.core.tasks import Key
from croupier.agent.directories import open_beneath, unlink_beneath
from croupier.agent.sandbox import Sandbox, Sandboxes
from croupier.agent.shim import run_file
from croupier.agent.shim.build import Shim
from croupier.agent.shim.launch_errors import cause_on_agent, exit_code_of, objection
from croupier.agent.shim.orphan_runs import end_strays
from croupier.agent.shim.orphan_sweep import Remains, sweep
from croupier.agent.shim.run_file import RunRecord
from croupier.agent.shim.shim_process import Watched
from croupier.agent.shim.start import Channels, high, start_shim
from croupier.agent.unix_user import Account
from croupier.model.errors import InvalidRequest
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

Report = Started | LaunchFailed | Exited

# A shim that holds its lock says within this who it is; one that was stopped does not.
ADOPT_S = 2.0
_ADOPT_POLL_S = 0.001
# What a shim has written of an end is read so long, should descriptors be short, before the
# end counts as unknown.
READ_S = 60.0
READ_AGAIN_S = 0.5
# How often shims that owe an answer are continued, for a task may have stopped its own; and in
# how many of these looks all others are, which may owe an end.
LOOK_S = 1.0
_LOOKS_AT_ALL = 10
_NEWS_BYTES = 65536


class Supervisor:
    """Every shim that was started or adopted and has not ended."""

    def __init__(
        self,
        runs: Path,
        sandboxes: Sandboxes,
        shim: Shim,
        report: Callable[[Report], None],
        failed: Callable[[str], None],
    ) -> None:
        """Keep run files in `runs`, and tell `report`, in the loop, what becomes of each.

        A process that was asked for is answered with `Started` or `LaunchFailed`, and each
        that was started or adopted with `Exited`. `failed` is told of the step that failed.

        Raises:
            OSError: if `runs` cannot be made, or there are no descriptors left.
        """
        runs.mkdir(mode=0o700, exist_ok=True)
        self._runs, self._sandboxes, self._shim = runs.absolute(), sandboxes, shim
        self._report, self._failed = report, failed
        self._running: dict[Key, Watched] = {}
        self._keys: dict[int, Key] = {}
        self._rest = b""
        self._null = high(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        reading, writing = os.pipe()
        self._news, self._news_end = high(reading), high(writing)
        os.set_blocking(self._news, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._news, self._on_news)
        self._sweeper = ThreadPoolExecutor(1, "sweeper")
        # Shims that are gone, whose ends are still to be told; and when they are tried again.
        self._ending = 0
        self._looks = 0
        self._look_again = self._loop.call_later(LOOK_S, self._look)
        self._tries: dict[str, asyncio.TimerHandle] = {}
        self._all_ended = asyncio.Event()
        self._all_ended.set()

    def __len__(self) -> int:
        return len(self._running)

    def spawn(
        self,
        key: Key,
        run: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        sandbox: Sandbox,
        account: Account | None = None,
    ) -> None:
        """Start a shim that starts the process; what comes of it is reported.

        The process leads a session and group of its own. Takes about a third of a millisecond.

        Raises:
            OSError: if there is no room for the run file or for a process.
            ValueError: if a word or variable cannot be given to any process.
        """
        path = self._path(run)
        words = [sandbox.path, str(account or "-"), *argv]
        channels = Channels(self._null, sandbox.stdout, sandbox.stderr, self._news_end)
        pid, pidfd = start_shim(self._shim, path, words, environment, channels)
        self._watch(key, Watched(run, pid, pidfd, argv[0]))

    def adopt(self, key: Key, run: str) -> Adopted | Exited | LaunchFailed | Vanished:
        """Find out what became of a run of an earlier agent on this work dir.

        What lives is watched from now on, and its end is reported. Of what has vanished,
        nothing is left. Takes up to 2 s if the shim was stopped just as it began, and up to
        10 s if what it left cannot be killed.

        Raises:
            OSError: if the run file cannot be read, there are no descriptors left, or the shim
                can be neither watched nor ended.
        """
        path = self._path(run)
        try:
            fd = open_beneath(path, os.O_RDWR)
        except FileNotFoundError:
            return Vanished(key, "it was never started", never_started=True)
        try:
            record = self._hold(key, run, fd)
            if key in self._running:
                return Adopted(key, self._running[key].pid)
            if not record.is_whole or (record.end is None and record.error is None):
                # Perhaps a shim that was stopped as it began: it must not go on later.
                sweep(self._remains(key, run))
                if not run_file.try_lock(fd):
                    raise OSError(errno.EBUSY, f"{path} is locked by a process that does not end")
                record = run_file.read(fd)
            size = os.fstat(fd).st_size
        finally:
            os.close(fd)
        if record.end is not None:
            return Exited(key, record.end.exit_code, record.end.signal)
        if record.error is not None and record.is_whole:
            return LaunchFailed(key, objection("", record.error), exit_code_of(record.error))
        if not size or (record.is_whole and record.shim is None):
            return Vanished(key, "it was never started", never_started=True)
        if record.is_whole:
            return Vanished(key, "what watched over it was killed")
        return Vanished(key, f"its run file {path} is damaged")

    def signal(self, key: Key, number: Signals) -> None:
        """SIGTERM the task's process group, or SIGKILL all that descends from it.

        Nothing happens if it has ended. A shim that does not end the task within 15 s of a
        SIGKILL is killed itself, and what is left of the task after it.
        """
        running = self._running.get(key)
        if running is None:
            return
        if number == SIGTERM:
            running.send(SIGTERM)
        else:
            running.end(self._loop.time())

    def forget(self, run: str) -> None:
        """Remove what is kept of a run that is over.

        Raises:
            OSError: if the disk does not let us.
        """
        unlink_beneath(self._path(run))

    def forget_strays(self, known: Collection[str]) -> int:
        """End and forget the runs in the directory that are not `known`; how many lived.

        Such are left by an agent that was killed before it forgot them, or whose records were
        lost. Blocks until they have ended; for up to about 20 s where something cannot be killed.

        Raises:
            OSError: if the directory cannot be read or written to.
        """
        return end_strays(self._runs, known)

    async def end(self, timeout_s: float) -> int:
        """SIGKILL all tasks, and wait for the end of their shims; how many are left then."""
        for key in list(self._running):
            self.signal(key, SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._all_ended.wait()
        return len(self._running)

    def close(self) -> None:
        """Let go of all shims; they and their tasks run on."""
        for key in list(self._running):
            self._release(key)
        for again in (self._look_again, *self._tries.values()):
            again.cancel()
        self._loop.remove_reader(self._news)
        for fd in (self._news, self._news_end, self._null):
            os.close(fd)
        self._sweeper.shutdown(wait=False, cancel_futures=True)

    def _path(self, run: str) -> Path:
        if not run or "/" in run or run.startswith("."):
            raise InvalidRequest(f"{run!r} is not the name of a run")
        return self._runs / run

    def _remains(self, key: Key, run: str, *sessions: int) -> Remains:
        return Remains([str(self._path(run))], [self._sandboxes.path_of(key)], sessions)

    def _hold(self, key: Key, run: str, fd: int) -> RunRecord:
        """Watch the shim that holds the run file's lock; what is written if none does."""
        deadline = time.monotonic() + ADOPT_S
        while True:
            # Tried before the reading: what a shim that is gone has written is then final.
            is_over = run_file.try_lock(fd)
            record = run_file.read(fd)
            if is_over or time.monotonic() >= deadline:
                return record
            if record.shim is not None and self._takes_over(key, run, record.shim, record.task):
                return record
            time.sleep(_ADOPT_POLL_S)

    def _takes_over(
        self, key: Key, run: str, shim: run_file.Process, task: run_file.Process | None
    ) -> bool:
        """Watch the shim if it lives and its task has started; False if one of that is not so."""
        try:
            pidfd = os.pidfd_open(shim.pid)
        except ProcessLookupError:
            return False
        found = Watched(run, shim.pid, pidfd, is_child=False, pid=task.pid if task else 0)
        is_alive = shim.is_of_that_start()
        if is_alive and task is not None:
            self._watch(key, found)
            return True
        if is_alive:
            # Its task may have stopped it before it could say that there is one.
            found.send(SIGCONT)
        os.close(pidfd)
        return False

    def _look(self) -> None:
        """Continue shims that may have been stopped, and kill those that do not end."""
        self._look_again = self._loop.call_later(LOOK_S, self._look)
        self._looks += 1
        is_for_all = self._looks % _LOOKS_AT_ALL == 0
        now = self._loop.time()
        for running in self._running.values():
            if running.is_overdue(now):
                _log.error("shim_does_not_end", run=running.run, shim=running.shim)
                running.send(SIGKILL)
            elif is_for_all or running.owes:
                running.send(SIGCONT)

    def _watch(self, key: Key, running: Watched) -> None:
        self._running[key] = running
        self._keys[running.shim] = key
        self._all_ended.clear()
        self._loop.add_reader(running.pidfd, self._on_shim_ended, key)

    def _release(self, key: Key) -> None:
        running = self._running.pop(key)
        del self._keys[running.shim]
        self._loop.remove_reader(running.pidfd)
        os.close(running.pidfd)

    def _on_news(self) -> None:
        """Read what shims say about starts: `SHIM task PID START` or `SHIM error STEP ERRNO`."""
        with suppress(BlockingIOError):
            while chunk := os.read(self._news, _NEWS_BYTES):
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                for line in lines:
                    shim, _, said = line.partition(b" ")
                    key = self._keys.get(int(shim))
                    if key is not None:
                        self._on_start(key, run_file.parse_start(said + b"\n"))
                if len(chunk) < _NEWS_BYTES:
                    return

    def _on_start(self, key: Key, start: run_file.Process | run_file.StartError | None) -> None:
        running = self._running[key]
        if running.pid or running.failed or start is None:
            return
        if isinstance(start, run_file.Process):
            running.pid = start.pid
            self._report(Started(key, start.pid))
            return
        running.failed = True
        self._failed(start.step)
        message = objection(running.program, start)
        cause = cause_on_agent(start)
        self._report(LaunchFailed(key, message, exit_code_of(start), cause))

    def _on_shim_ended(self, key: Key) -> None:
        # What it said before comes first.
        self._on_news()
        running = self._running[key]
        self._release(key)
        if running.is_child:
            with suppress(ChildProcessError):
                os.waitpid(running.shim, 0)
        self._ending += 1
        self._tell_end(key, running, self._loop.time() + READ_S)

    def _tell_end(self, key: Key, running: Watched, until: float) -> None:
        """Report what the shim has written; if that cannot be read, perhaps it can later."""
        self._tries.pop(running.run, None)
        try:
            record = self._read(running.run)
        except OSError as error:
            _log.error("run_file_unreadable", run=running.run, error=str(error))
            if self._loop.time() < until and not isinstance(error, FileNotFoundError):
                again = self._loop.call_later(READ_AGAIN_S, self._tell_end, key, running, until)
                self._tries[running.run] = again
                return
            record = RunRecord()
        if not (running.pid or running.failed) and record.task is not None:
            # It was killed before it could say so to the agent too.
            running.pid = record.task.pid
            self._report(Started(key, running.pid))
        if not running.failed and record.end is not None and running.pid:
            self._note_end(Exited(key, record.end.exit_code, record.end.signal))
        elif not running.failed:
            _log.error("shim_killed", run=running.run, shim=running.shim, pid=running.pid)
            self._sweep(key, running)
        else:
            self._note_end(None)

    def _read(self, run: str) -> RunRecord:
        fd = run_file.open_to_read(self._path(run))
        try:
            return run_file.read(fd)
        finally:
            os.close(fd)

    def _sweep(self, key: Key, running: Watched) -> None:
        """End what a shim that was killed has left, off the loop; then report the end."""

        def tell(future: Future[int]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is not None:
                _log.error("sweep_failed", run=running.run, error=repr(error))
            with suppress(RuntimeError):
                # The loop may be over by now: the next agent looks again.
                self._loop.call_soon_threadsafe(self._note_end, end)

        if running.pid:
            end: Exited | LaunchFailed = Exited(key, unknown=True)
            sessions = [running.pid]
        else:
            message = "what was to watch over it was killed"
            cause = "the shim of a task was killed before it started it"
            end = LaunchFailed(key, message, cause=cause)
            sessions = []
        remains = self._remains(key, running.run, *sessions)
        self._sweeper.submit(sweep, remains).add_done_callback(tell)

    def _note_end(self, end: Report | None) -> None:
        """One that was watched is no more; None: that was reported before."""
        self._ending -= 1
        if end is not None:
            self._report(end)
        if not self._running and not self._ending:
            self._all_ended.set()
