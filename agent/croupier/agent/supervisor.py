"""The processes of tasks: each runs under a shim, which the agent starts, signals and watches.

Rule: the agent signals only shims, and each through a pidfd that was opened while the shim was
known to live: as a child that is not reaped, or as the holder of its run file's lock.

The shim starts and ends the task's process without the agent. So the process outlives the agent,
and the next agent on the work dir adopts it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGTERM, Signals

from croupier.agent.core.events import Adopted, Exited, LaunchFailed, Started, Vanished
from croupier.agent.core.tasks import Key
from croupier.agent.directories import closing, open_beneath
from croupier.agent.isolation.isolator import NO_ISOLATION, Launch, Layers
from croupier.agent.run_ends import RunEnds, RunEvent
from croupier.agent.sandbox import Sandbox, Sandboxes
from croupier.agent.shim import run_file
from croupier.agent.shim.build import Shim
from croupier.agent.shim.orphans import OPTION, kill_given
from croupier.agent.shim.run_file import RunRecord
from croupier.agent.shim.shim_process import PASS_ON, ShimProcess
from croupier.agent.shim.start import (
    as_shell,
    cause_on_agent,
    describe,
    exit_code_of,
    move_up,
    start_shim,
)
from croupier.agent.shim.waiting import WaitingShim, WaitingShims, message_of
from croupier.model.errors import InvalidRequest
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

# A shim that holds its lock writes its pid within this time, unless it was stopped.
ADOPT_S = 2.0
_ADOPT_POLL_S = 0.001
# A task may stop its shim. So the agent sends SIGCONT to shims that have to answer at each check,
# and to all others, which may have to report an end, at every tenth.
CHECK_S = 1.0
_CHECKS_OF_ALL = 10
_REPORT_BYTES = 65536


class Supervisor:
    """Watches every shim that was started or adopted; `ends` has those that have ended."""

    def __init__(
        self,
        runs: Path,
        sandboxes: Sandboxes,
        shim: Shim,
        report: Callable[[RunEvent], None],
        failed: Callable[[str], None],
        isolation: Layers = NO_ISOLATION,
    ) -> None:
        """Keep run files in `runs`, and call `report`, in the loop, with the events of runs.

        Each `spawn` is answered with `Started` or `LaunchFailed`; `Exited` follows each start and
        adoption. `failed` is called with the step of a failed start. `isolation` tells what is left
        of runs whose shims have ended, and kills it. Raises OSError if `runs` cannot be made, or
        there are no descriptors left.
        """
        runs.mkdir(mode=0o700, exist_ok=True)
        self._runs, self._shim = runs.absolute(), shim
        self._report, self._failed, self._isolation = report, failed, isolation
        self.ends = RunEnds(self._runs, sandboxes, isolation, report, self._note_end)
        self._running: dict[Key, ShimProcess] = {}
        self._keys: dict[int, Key] = {}
        self._rest = b""
        self._null = move_up(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        reading, writing = os.pipe()
        self._pipe, self._pipe_end = move_up(reading), move_up(writing)
        os.set_blocking(self._pipe, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pipe, self._on_pipe)
        self._waiting = WaitingShims(
            shim, self._runs, sandboxes.spare, self._null, self._pipe_end, self._on_waiting_ended
        )
        self._checks = 0
        self._next_check = self._loop.call_later(CHECK_S, self._check)
        self._all_ended = asyncio.Event()
        self._all_ended.set()

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, launch: Launch, sandbox: Sandbox) -> None:
        """Start a shim that starts the process; the result is reported.

        The process leads a session and group of its own. Takes about a third of a millisecond.

        Raises:
            OSError: if the run file or the shim cannot be created.
            ValueError: if no process can be given one of the arguments or variables.
        """
        path = self.path_of(launch.run)
        user = () if launch.user is None else (f"user={launch.user}",)
        words = [sandbox.path, f"{OPTION}{path}", *launch.options, *user, "--", *launch.argv]
        message = message_of(words, launch.environment, path) if self._shim.waits else None
        if message is None:
            with sandbox.streams() as streams:
                channels = (self._null, *streams, self._pipe_end)
                pid, pidfd = start_shim(self._shim, path, words, launch.environment, channels)
            running = ShimProcess(launch.run, pid, pidfd, launch.program)
        else:
            waiting = self._waiting.launch(path, message, sandbox.home)
            pid, pidfd = waiting.process.pid, waiting.pidfd
            running = ShimProcess(launch.run, pid, pidfd, launch.program, waiting=waiting)
        running.is_own_user = launch.user is not None and launch.user.is_own
        running.search_path = launch.search_path
        self._watch(launch.key, running)

    def adopt(self, key: Key, run: str) -> Adopted | Exited | LaunchFailed | Vanished:
        """Determine the state of a run of an earlier agent on this work dir.

        A live run is watched from now on, and its end is reported. Nothing is left of a run that
        has vanished. Takes up to 2 s if the shim was stopped just as it began, and up to 10 s if
        its processes cannot be killed. Raises OSError if the run file cannot be read, there are no
        descriptors left, or the shim can be neither watched nor ended.
        """
        path = self.path_of(run)
        try:
            fd = open_beneath(path, os.O_RDWR)
        except FileNotFoundError:
            return Vanished(key, "it was never started", never_started=True)
        with closing(fd):
            record = self._hold(key, run, fd)
            if key in self._running:
                age_s = record.task.age_s() if record.task else None
                return Adopted(key, self._running[key].pid, age_s)
            if not record.is_whole or (record.end is None and record.error is None):
                # This may be a shim that was stopped as it began. It must not continue later.
                self.ends.kill_rest(key, run)
                if record.given is not None and not run_file.try_lock(fd):
                    kill_given(record.given)
                if not run_file.try_lock(fd):
                    raise OSError(errno.EBUSY, f"{path} is locked by a process that does not end")
                record = run_file.read(fd)
            size = os.fstat(fd).st_size
        if record.end is not None:
            if not self.ends.is_empty(run):
                # The agent was killed before it could kill what the shim had left.
                self._isolation.kill(run)
            return self.ends.exited(key, run, record)
        if record.error is not None and record.is_whole:
            return LaunchFailed(key, describe("", record.error), exit_code_of(record.error))
        if not size or (record.is_whole and record.shim is None):
            return Vanished(key, "it was never started", never_started=True)
        if record.is_whole:
            return Vanished(key, "its shim was killed", ending=self.ends.ending_of(run))
        return Vanished(key, f"its run file {path} is damaged", ending=self.ends.ending_of(run))

    def running(self, key: Key) -> ShimProcess | None:
        """Return the shim of a task, whose processes live; None if there is none."""
        return self._running.get(key)

    def shims(self) -> dict[int, str]:
        """Return the pids of live shims with their runs."""
        return {each.shim: each.run for each in self._running.values()}

    def path_of(self, run: str) -> Path:
        """Return the path of a run file, which marks the processes of the run.

        Raises InvalidRequest if it is not the name of a run.
        """
        return self._runs / _checked(run)

    def signal(self, key: Key, number: Signals) -> None:
        """Send a signal to the task's process group, or SIGKILL to all that descends from it.

        Nothing happens if the task has ended. If its shim does not end it within 15 s of a
        SIGKILL, the agent kills the shim, and then the remaining processes.
        """
        running = self._running.get(key)
        if running is None:
            return
        if number == SIGKILL:
            running.end(self._loop.time())
        else:
            running.send(number if number == SIGTERM else PASS_ON + number)

    def forget(self, run: str) -> None:
        """Remove the run file of a run that has ended; raises OSError if it cannot be removed."""
        self._waiting.run_files.put(_checked(run))

    async def end(self, timeout_s: float) -> int:
        """Kill all tasks, and wait for the end of their shims; return how many are left."""
        for key in list(self._running):
            self.signal(key, SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._all_ended.wait()
        return len(self._running)

    def close(self) -> None:
        """Stop watching; all shims and their tasks keep running."""
        for key in list(self._running):
            self._release(key)
        self._next_check.cancel()
        self.ends.close()
        self._waiting.close()
        self._loop.remove_reader(self._pipe)
        for fd in (self._pipe, self._pipe_end, self._null):
            os.close(fd)

    def _note_end(self) -> None:
        if not self._running and not self.ends:
            self._all_ended.set()

    def _hold(self, key: Key, run: str, fd: int) -> RunRecord:
        """Watch the shim that holds the run file's lock, if one does; return the file's content."""
        deadline = time.monotonic() + ADOPT_S
        while True:
            # The lock is tried first: once the shim has ended, the content is final.
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
        try:
            pidfd = os.pidfd_open(shim.pid)
        except ProcessLookupError:
            return False
        found = ShimProcess(run, shim.pid, pidfd, is_child=False, pid=task.pid if task else 0)
        is_alive = shim.is_alive()
        if is_alive and task is not None:
            self._watch(key, found)
            return True
        if is_alive:
            # Its task may have stopped it before it could report the start.
            found.send(SIGCONT)
        os.close(pidfd)
        return False

    def _check(self) -> None:
        """Continue shims that may have been stopped, and kill those that do not end."""
        self._next_check = self._loop.call_later(CHECK_S, self._check)
        self._waiting.expire()
        self._checks += 1
        is_for_all = self._checks % _CHECKS_OF_ALL == 0
        now = self._loop.time()
        for running in self._running.values():
            has_started = running.pid or running.failed
            if running.kill_at is not None and now >= running.kill_at:
                _log.error("shim_does_not_end", run=running.run, shim=running.shim)
                running.send(SIGKILL)
            elif is_for_all or running.kill_at is not None or not has_started:
                running.send(SIGCONT)

    def _watch(self, key: Key, running: ShimProcess) -> None:
        self._running[key] = running
        self._keys[running.shim] = key
        self._all_ended.clear()
        if running.waiting is None:
            self._loop.add_reader(running.pidfd, self._on_shim_ended, running.shim)

    def _release(self, key: Key) -> ShimProcess:
        running = self._running.pop(key)
        del self._keys[running.shim]
        if running.waiting is None:
            self._loop.remove_reader(running.pidfd)
            os.close(running.pidfd)
        return running

    def _on_pipe(self) -> None:
        """Read what shims report: their pids, with lines of the run file."""
        with suppress(BlockingIOError):
            while chunk := os.read(self._pipe, _REPORT_BYTES):
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                for line in lines:
                    shim, _, told = line.partition(b" ")
                    key = self._keys.get(int(shim))
                    if key is not None:
                        self._on_report(key, told + b"\n")
                if len(chunk) < _REPORT_BYTES:
                    return

    def _on_report(self, key: Key, told: bytes) -> None:
        """Record a start, or an end with its usage, which only a waiting shim reports."""
        end = None if told.startswith(run_file.START) else run_file.parse_end(told)
        if end is None:
            self._on_start(key, run_file.parse_start(told))
            running = self._running[key]
            if running.waiting is not None and running.failed:
                self._put_back(key, running.waiting, None)
            return
        running = self._running[key]
        if running.waiting is not None and running.pid:
            self._put_back(key, running.waiting, end)

    def _put_back(self, key: Key, waiting: WaitingShim, record: RunRecord | None) -> None:
        """Reuse a shim whose run has ended, or has failed to start."""
        running = self._release(key)
        self._waiting.put_back(waiting)
        self.ends.decide(key, running, record or RunRecord())

    def _on_start(self, key: Key, start: run_file.Process | run_file.StartError | None) -> None:
        running = self._running[key]
        if running.pid or running.failed or start is None:
            return
        if isinstance(start, run_file.Process):
            running.started(start.pid)
            self._report(Started(key, start.pid))
            return
        running.failed = True
        self._failed(start.step)
        start = as_shell(start, running.program, running.search_path)
        message = describe(running.program, start, is_own_user=running.is_own_user)
        self._report(LaunchFailed(key, message, exit_code_of(start), cause_on_agent(start)))

    def _on_shim_ended(self, pid: int) -> None:
        # Its reports come first.
        self._on_pipe()
        key = self._keys[pid]
        running = self._release(key)
        if running.is_child:
            with suppress(ChildProcessError):
                os.waitpid(running.shim, 0)
        self.ends.read(key, running)

    def _on_waiting_ended(self, pid: int) -> None:
        # Its reports come first.
        self._on_pipe()
        key = self._keys.get(pid)
        self._waiting.discard(pid)
        if key is not None:
            # Before its task, or with it.
            self.ends.read(key, self._release(key))


def _checked(run: str) -> str:
    if not run or "/" in run or run.startswith("."):
        raise InvalidRequest(f"{run!r} is not the name of a run")
    return run
