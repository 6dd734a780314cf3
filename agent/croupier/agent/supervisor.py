"""The processes of tasks: started, signalled, waited for.

Rule: a process is reaped only after its group was killed and its session struck off the
watchdog's list. Until it is reaped its number is nobody else's, so no signal can hit a
stranger.

Popen stays on vfork with the arguments that are used here. With preexec_fn, user or group
it would fork for real, and gRPC's threads crash the child before it gets to exec.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from signal import SIGKILL, Signals
from typing import Protocol

from croupier.agent.core.events import Exited
from croupier.agent.core.tasks import Key
from croupier.agent.sandbox import Sandbox


class SessionWatch(Protocol):
    """Who wants to know which sessions the tasks lead."""

    def note_started(self, pid: int) -> None:
        """A session began."""

    def note_ended(self, pid: int) -> None:
        """Its leader has ended."""


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    pidfd: int


class Supervisor:
    """Every process that the agent started for a task and that has not been reaped."""

    def __init__(self, watch: SessionWatch, on_exit: Callable[[Exited], None]) -> None:
        """Tell `on_exit`, in the loop, of each end."""
        self._watch, self._on_exit = watch, on_exit
        self._running: dict[Key, _Running] = {}
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)

    def pids(self) -> Iterable[int]:
        """The sessions that live."""
        return [running.process.pid for running in self._running.values()]

    def spawn(
        self,
        key: Key,
        argv: Sequence[str],
        environment: Mapping[str, str],
        sandbox: Sandbox,
    ) -> int:
        """Start a process that leads a session and group of its own; its pid.

        Raises:
            OSError: if the program cannot be run, or there is no room for a process.
        """
        process = subprocess.Popen(
            argv,
            stdin=self._null,
            stdout=sandbox.stdout,
            stderr=sandbox.stderr,
            cwd=sandbox.path,
            env=environment,
            start_new_session=True,
            close_fds=True,
        )
        self._watch.note_started(process.pid)
        try:
            pidfd = os.pidfd_open(process.pid)
        except OSError:
            self._end_group(process.pid, SIGKILL)
            self._watch.note_ended(process.pid)
            process.wait()
            raise
        self._running[key] = _Running(process, pidfd)
        asyncio.get_running_loop().add_reader(pidfd, self._on_readable, key)
        return process.pid

    def signal(self, key: Key, number: Signals) -> None:
        """Signal the task's process group; nothing happens if it has ended."""
        running = self._running.get(key)
        if running is not None:
            self._end_group(running.process.pid, number)

    def close(self) -> None:
        """Kill what still runs, and let go of everything; what was killed is reaped."""
        for key, running in list(self._running.items()):
            self._end_group(running.process.pid, SIGKILL)
            try:
                running.process.wait(timeout=1.0)
            except subprocess.TimeoutExpired:
                # It hangs in the kernel: the watchdog has it on its list.
                self._release(key)
            else:
                self._watch.note_ended(running.process.pid)
                self._release(key)
        os.close(self._null)

    def _on_readable(self, key: Key) -> None:
        running = self._running[key]
        pid = running.process.pid
        self._end_group(pid, SIGKILL)
        self._watch.note_ended(pid)
        code = running.process.poll()
        assert code is not None
        self._release(key)
        self._on_exit(Exited(key, signal=-code) if code < 0 else Exited(key, exit_code=code))

    def _release(self, key: Key) -> None:
        running = self._running.pop(key)
        asyncio.get_running_loop().remove_reader(running.pidfd)
        os.close(running.pidfd)

    def _end_group(self, pid: int, number: Signals) -> None:
        # It is empty, or all that is left of it has become somebody else, as by sudo.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)
