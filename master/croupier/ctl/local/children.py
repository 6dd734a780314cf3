"""The child processes of a local cluster.

Rule: this process adopts every descendant whose parent dies (it is a child subreaper) and reaps
them all. Nothing else in it may start processes or wait for them.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from croupier.ctl.local.plan import Daemon

PR_SET_CHILD_SUBREAPER = 36
_LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class Child:
    """A daemon that logs to `log`. `ended` is set once it is reaped and `status` is known."""

    def __init__(self, name: str, pid: int, log: Path) -> None:
        self.name, self.pid, self.log = name, pid, log
        self.ended = asyncio.Event()
        self.status = 0

    @property
    def exit_text(self) -> str:
        """The end of the process, as text."""
        if self.status < 0:
            return f"was killed by {signal.Signals(-self.status).name}"
        return f"ended with exit code {self.status}"

    def last_log_line(self) -> str:
        """Return the last line of its log; empty if there is none."""
        with suppress(OSError):
            lines = self.log.read_text(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""


class Children:
    """All child processes of this one. A process has one, in its running loop."""

    def __init__(self) -> None:
        """Become a subreaper, and reap from now on."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._by_pid: dict[int, Child] = {}
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)

    def start(
        self, daemon: Daemon, log: Path, environment: Mapping[str, str], stdin: int | None = None
    ) -> Child:
        """Start `daemon` in a process group without Ctrl-C; `stdin` None is /dev/null."""
        null, stderr = os.devnull, str(log)
        own = (
            (os.POSIX_SPAWN_OPEN, 0, null, os.O_RDONLY, 0)
            if stdin is None
            else (os.POSIX_SPAWN_DUP2, stdin, 0)
        )
        pid = os.posix_spawn(
            daemon.argv[0],
            daemon.argv,
            environment,
            file_actions=[
                own,
                (os.POSIX_SPAWN_OPEN, 1, null, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, stderr, _LOG_FLAGS, 0o600),
            ],
            setpgroup=0,
            setsigdef=[signal.SIGINT, signal.SIGPIPE],
        )
        child = Child(daemon.name, pid, log)
        self._by_pid[pid] = child
        return child

    def reap(self) -> None:
        """Reap every child that has ended, adopted ones too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            child = self._by_pid.pop(pid, None)
            if child is not None:
                child.status = os.waitstatus_to_exitcode(status)
                child.ended.set()

    def signal(self, child: Child, number: signal.Signals) -> None:
        """Send a signal to a child that has not ended."""
        if child.pid in self._by_pid:
            os.kill(child.pid, number)

    async def end_all(self, timeout_s: float = 5.0) -> list[int]:
        """Kill and reap every descendant; return the pids of those left after `timeout_s`."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while left := descendants(os.getpid()):
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self.reap()
            if asyncio.get_running_loop().time() > deadline:
                return left
            await asyncio.sleep(0.01)
        return []


def descendants(root: int) -> list[int]:
    """Return the pids of all processes below `root`, including zombies."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # The name in brackets may contain brackets and spaces.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, pending = [], [root]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found
