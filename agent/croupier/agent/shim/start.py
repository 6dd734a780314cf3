"""A shim is started: with the run file whose lock it holds, and what it is to speak over.

`posix_spawn` does not fork for real, as `preexec_fn`, user or group would: with those,
gRPC's threads crash the child before it gets to exec.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGSTOP

from croupier.agent.directories import unlink_beneath
from croupier.agent.shim import run_file
from croupier.agent.shim.build import Shim
from croupier.agent.shim.orphan_sweep import PREFIX, VARIABLE

# The shim's descriptors are 0 to 4; none that it is given may be overwritten by another.
_LEAST_FD = 10
_ALL_SIGNALS = signal.valid_signals()
_TO_DEFAULT = _ALL_SIGNALS - {SIGKILL, SIGSTOP}


@dataclass(frozen=True, slots=True)
class Channels:
    """Descriptors that a shim is given: all but `news` are for its task."""

    stdin: int
    stdout: int
    stderr: int
    news: int


def start_shim(
    shim: Shim,
    path: Path,
    words: Sequence[str],
    environment: Mapping[str, str],
    channels: Channels,
) -> tuple[int, int]:
    """Start a shim on a new run file; its pid, and a pidfd of it.

    Args:
        shim: the program.
        path: of the run file.
        words: the sandbox, the account or "-", and what the task is to be.
        environment: the task's.
        channels: what both speak over.

    Raises:
        OSError: if there is no room for the run file or for a process; no file is left then.
        ValueError: if a word or variable cannot be given to any process.
    """
    created = run_file.create(path)
    try:
        fd = high(created)
    except OSError:
        unlink_beneath(path)
        raise
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        given = {PREFIX + name: value for name, value in environment.items()}
        given[f"{PREFIX}{VARIABLE}"] = str(path)
        pid = os.posix_spawn(
            shim.argv[0],
            [*shim.argv, *words],
            given,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, channels.stdin, 0),
                (os.POSIX_SPAWN_DUP2, channels.stdout, 1),
                (os.POSIX_SPAWN_DUP2, channels.stderr, 2),
                (os.POSIX_SPAWN_DUP2, fd, 3),
                (os.POSIX_SPAWN_DUP2, channels.news, 4),
            ],
            setsid=True,
            setsigmask=_ALL_SIGNALS,
            setsigdef=_TO_DEFAULT,
        )
    except BaseException:
        unlink_beneath(path)
        raise
    finally:
        os.close(fd)
    try:
        return pid, os.pidfd_open(pid)
    except OSError:
        # It has no task yet that could outlive it, or the kernel ends that with it.
        os.kill(pid, SIGKILL)
        os.waitpid(pid, 0)
        unlink_beneath(path)
        raise


def high(fd: int) -> int:
    """The same file under a number that the shim has no use for; `fd` may be closed."""
    if fd >= _LEAST_FD:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LEAST_FD)
    finally:
        os.close(fd)
