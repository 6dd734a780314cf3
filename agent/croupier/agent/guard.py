"""Keeps the watchdog running, and tells it which sessions the tasks lead."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from croupier.agent import watchdog
from croupier.rpc.backoff import Backoff

_log = structlog.get_logger("croupier.agent")

# The sweep takes at most 10 s; then the watchdog has ended.
STOP_S = 12.0


class Guard:
    """The watchdog process of this agent, restarted when it dies."""

    def __init__(
        self,
        run_id: str,
        sandboxes: Path,
        lock_fd: int,
        sessions: Callable[[], Iterable[int]],
        backoff: Backoff,
        on_restart: Callable[[], None],
    ) -> None:
        """Guard what carries `run_id`, prints to `sandboxes`, or is of `sessions`.

        `sessions` are asked for when a watchdog starts; it is told of later ones.

        The watchdog holds the work dir's lock too, so that no other agent begins there
        before the tasks of this one are gone.
        """
        self._words = (run_id, str(sandboxes))
        self._lock_fd, self._sessions = lock_fd, sessions
        self._backoff, self._on_restart = backoff, on_restart
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None
        self._ended = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Of the watchdog; None while there is none."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the watchdog.

        Raises:
            OSError: if there are no processes or file descriptors left.
        """
        reading, self._pipe = os.pipe()
        try:
            os.set_blocking(self._pipe, False)
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", watchdog.__file__, str(reading), *self._words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(reading, self._lock_fd),
                cwd=Path("/"),
                env={},
                start_new_session=True,
            )
        except OSError:
            self._close_pipe()
            raise
        finally:
            os.close(reading)
        try:
            self._watch(process)
        except OSError:
            # One that is not watched must be gone before its pipe is closed, or it sweeps.
            process.kill()
            process.wait()
            self._close_pipe()
            raise
        self._process = process
        self._ended.clear()
        for pid in self._sessions():
            self.note_started(pid)

    async def keep(self) -> None:
        """Start the watchdog again whenever it ends."""
        while True:
            await self._ended.wait()
            self._on_restart()
            wait_s = self._backoff.next_s()
            _log.error("watchdog_ended", restart_in_s=round(wait_s, 3))
            await asyncio.sleep(wait_s)
            self._close_pipe()
            try:
                self.start()
            except OSError as error:
                _log.error("watchdog_not_started", error=str(error))

    def note_started(self, pid: int) -> None:
        """A task's process leads a new session."""
        self._note(b"+%d\n" % pid)

    def note_ended(self, pid: int) -> None:
        """It has ended, but is not reaped yet: its number may be taken once it is."""
        self._note(b"-%d\n" % pid)

    async def stop(self) -> None:
        """Let the watchdog make its sweep, and wait for its end."""
        self._close_pipe()
        if self._process is None:
            return
        try:
            async with asyncio.timeout(STOP_S):
                await self._ended.wait()
        except TimeoutError:
            _log.error("watchdog_does_not_end", pid=self.pid)
            self._process.kill()
            async with asyncio.timeout(STOP_S):
                await self._ended.wait()

    def _note(self, line: bytes) -> None:
        if self._pipe is None:
            return
        try:
            os.write(self._pipe, line)
        except OSError as error:
            # It lags, or has just died: what carries the mark is found all the same.
            _log.debug("watchdog_not_told", error=str(error))

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        loop = asyncio.get_running_loop()
        fd = os.pidfd_open(process.pid)

        def on_end() -> None:
            loop.remove_reader(fd)
            os.close(fd)
            process.poll()
            self._process = None
            self._ended.set()

        loop.add_reader(fd, on_end)

    def _close_pipe(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
