"""Shims that wait: each starts one task after the other, which costs less than a shim for each.

waiting.h describes the messages. A shim that has no task for 30 s is ended. The run files of runs
that are forgotten are used again: making one and removing it may cost as much as a task.

Rule: a file has the name of a run only from just before its shim gets it until the run is
forgotten, and is blank until then. So a run without a file was never started.

Functions raise OSError if the system refuses what they need.
"""

from __future__ import annotations

import asyncio
import os
import socket
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, pidfd_send_signal
from typing import Final

from croupier.agent.directories import (
    closing,
    directory,
    open_directory,
    open_regular,
    unlink_beneath,
)
from croupier.agent.sandbox import STREAMS
from croupier.agent.shim import run_file
from croupier.agent.shim.build import Shim
from croupier.agent.shim.orphans import OPTION, VARIABLE
from croupier.agent.shim.start import create_locked, move_up, spawn_shim

# No run has such a name. The next agent removes these files as orphans.
_PREFIX: Final = ".spare-"
MOST_SPARE: Final = 256
# Idle shims that are kept, and for how many seconds. Each takes 50 KB.
MOST_IDLE: Final = 256
IDLE_S: Final = 30.0
# Larger tasks get a shim of their own. waiting.h takes twice as much.
MOST_BYTES: Final = 32768
MOST_WORDS: Final = 4096
# The longest name of a run; by far.
_NAME_BYTES: Final = 64
# A task in a box has a shim that knows no other task.
BOXED: Final = "boxed"


class SpareRunFiles:
    """The spare files of one supervisor, in the directory of its run files."""

    def __init__(self, runs: Path) -> None:
        """Keep them in `runs`, which may be removed and made again."""
        self._runs = runs
        self._names: list[str] = []
        self._count = 0

    def close(self) -> None:
        """Remove the files."""
        for name in self._names:
            unlink_beneath(self._runs / name)
        self._names.clear()

    def put(self, run: str) -> None:
        """Keep the run file of a run that is over, if it has one."""
        if len(self._names) >= MOST_SPARE:
            unlink_beneath(self._runs / run)
            return
        self._count += 1
        name = f"{_PREFIX}{self._count}"
        with suppress(FileNotFoundError), directory(self._runs) as at:
            os.rename(run, name, src_dir_fd=at, dst_dir_fd=at)
            self._names.append(name)

    def take(self, run: str, given: run_file.Process) -> int:
        """Return a descriptor of a locked file for a run that has none; -1: make one.

        `given` is the shim that will get it.
        """
        if not self._names:
            return -1
        name = self._names.pop()
        with suppress(FileNotFoundError), directory(self._runs) as at:
            fd = move_up(open_regular(name, os.O_RDWR, at))
            try:
                found = os.fstat(fd)
                is_whole = found.st_size == run_file.SIZE and found.st_nlink == 1
                if is_whole and run_file.try_lock(fd):
                    os.pwrite(fd, run_file.blank(given), 0)
                    os.rename(name, run, src_dir_fd=at, dst_dir_fd=at)
                    return fd
            except OSError:
                os.close(fd)
                raise
            os.close(fd)
            os.unlink(name, dir_fd=at)
        return -1


@dataclass(slots=True, eq=False)
class WaitingShim:
    """A shim that waits for a task, or runs one.

    Attributes:
        channel: the messages to it.
        idle_since: on the loop's clock; meaningless while it runs a task.
    """

    process: run_file.Process
    pidfd: int
    channel: socket.socket
    idle_since: float = 0.0


class WaitingShims:
    """The waiting shims of one supervisor."""

    def __init__(
        self,
        shim: Shim,
        runs: Path,
        spare: Path,
        null: int,
        pipe: int,
        ended: Callable[[int], None],
    ) -> None:
        """Start `shim` for runs with files in `runs`, with /dev/null and the pipe for reports.

        `spare` is the directory of spare files for output.

        `ended` is called, in the loop, with the pid of one that has ended and is not reaped; it
        then calls `discard`.
        """
        self._shim, self._null, self._pipe, self._ended = shim, null, pipe, ended
        self._spare = _open_spare(spare)
        self.run_files = SpareRunFiles(runs)
        self._mark = "-" * (len(os.fsencode(f"{OPTION}{runs}/")) + _NAME_BYTES)
        self._loop = asyncio.get_running_loop()
        self._all: dict[int, WaitingShim] = {}
        self._idle: list[WaitingShim] = []

    def launch(self, path: Path, message: bytes, home: int) -> WaitingShim:
        """Give a task to a shim, on a new run file; `home` is its open sandbox.

        Raises OSError if the run file or a shim cannot be created; no file is left then.
        """
        while True:
            is_new = not self._idle
            waiting = self._start() if is_new else self._idle.pop()
            if self._give(waiting, path, message, home):
                return waiting
            self._kill(waiting)
            if is_new:
                raise ChildProcessError("a new shim was killed")

    def put_back(self, waiting: WaitingShim) -> None:
        """Keep a shim whose task has ended for the next task."""
        if len(self._idle) >= MOST_IDLE:
            self._kill(waiting)
            return
        waiting.idle_since = self._loop.time()
        self._idle.append(waiting)

    def discard(self, pid: int) -> None:
        """Reap a shim that has ended."""
        waiting = self._all.pop(pid)
        with suppress(ValueError):
            self._idle.remove(waiting)
        self._loop.remove_reader(waiting.pidfd)
        os.close(waiting.pidfd)
        waiting.channel.close()
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
        for stream in range(len(STREAMS)):
            with suppress(OSError):
                os.unlink(f"{pid}.{stream}", dir_fd=self._spare)

    def expire(self) -> None:
        """End shims that are idle for long."""
        before = self._loop.time() - IDLE_S
        count = 0
        # The last one that has ended its task is the first one that gets another.
        while count < len(self._idle) and self._idle[count].idle_since < before:
            self._kill(self._idle[count])
            count += 1
        del self._idle[:count]

    def close(self) -> None:
        """End idle shims; the others end with their tasks."""
        for waiting in self._idle:
            self._kill(waiting)
        for pid in [waiting.process.pid for waiting in self._idle]:
            self.discard(pid)
        for waiting in self._all.values():
            self._loop.remove_reader(waiting.pidfd)
            os.close(waiting.pidfd)
            waiting.channel.close()
        self._all.clear()
        os.close(self._spare)
        self.run_files.close()

    def _give(self, waiting: WaitingShim, path: Path, message: bytes, home: int) -> bool:
        run = self.run_files.take(path.name, waiting.process)
        if run < 0:
            run = create_locked(path, waiting.process)
        with closing(run):
            rights = ((socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", (home, run))),)
            flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
            try:
                waiting.channel.sendmsg((message,), rights, flags)
            except OSError:
                # It was killed, or is stuck.
                unlink_beneath(path)
                return False
        return True

    def _start(self) -> WaitingShim:
        own, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with closing(move_up(its.detach())) as fd:
                descriptors = (self._null, self._null, self._null, fd, self._pipe, self._spare)
                pid, pidfd = spawn_shim(self._shim, ("--wait", self._mark), {}, descriptors)
        except BaseException:
            own.close()
            raise
        process = run_file.Process(pid, run_file.start_of(pid) or 0)
        waiting = self._all[pid] = WaitingShim(process, pidfd, own)
        self._loop.add_reader(pidfd, self._ended, pid)
        return waiting

    def _kill(self, waiting: WaitingShim) -> None:
        with suppress(ProcessLookupError):
            pidfd_send_signal(waiting.pidfd, SIGKILL)


def _open_spare(path: Path) -> int:
    """Make the directory of spare files, and remove those of shims that have ended."""
    path.mkdir(mode=0o700, exist_ok=True)
    fd = move_up(open_directory(path, to_list=True))
    for name in os.listdir(fd):  # noqa: PTH208 - by descriptor
        pid = name.partition(".")[0]
        if not (pid.isdigit() and run_file.start_of(int(pid))):
            os.unlink(name, dir_fd=fd)
    return fd


def message_of(words: Sequence[str], environment: Mapping[str, str], path: Path) -> bytes | None:
    """Return the message for a task; None if a shim of its own has to start it.

    `words` are the sandbox, options, "--", and the task's arguments. Raises ValueError if no
    process can be given one of the words or variables.
    """
    variables = [f"{name}={value}" for name, value in environment.items()]
    texts = [str(len(words)), *words, *variables, f"{VARIABLE}={path}", ""]
    text = "\0".join(texts)
    if text.count("\0") >= len(texts):
        raise ValueError("embedded null byte")
    if not all(name and "=" not in name for name in environment):
        raise ValueError("illegal environment variable name")
    message = os.fsencode(text)
    is_large = len(message) > MOST_BYTES or len(texts) > MOST_WORDS
    return None if is_large or BOXED in words[: words.index("--")] else message
