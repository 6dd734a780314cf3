"""Starts a shim with its descriptors: its locked run file, the pipe and the task's streams.

`posix_spawn` does not run Python code in the child. `preexec_fn`, user or group of `subprocess`
would, and gRPC's threads then crash the child before its exec.
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
from croupier.agent.shim.orphans import PREFIX, VARIABLE

# The shim's descriptors are 0 to 6. Descriptors from 10 on are not overwritten by the dup2 calls.
_LEAST_FD = 10
ALL_SIGNALS = signal.valid_signals()
TO_DEFAULT = ALL_SIGNALS - {SIGKILL, SIGSTOP}


@dataclass(frozen=True, slots=True)
class Channels:
    """Descriptors for a shim: its task's streams, and the pipe for reports to the agent.

    Attributes:
        further: those that an option needs, from number 5 on.
    """

    stdin: int
    stdout: int
    stderr: int
    pipe: int
    further: tuple[int, ...] = ()


def start_shim(
    shim: Shim,
    path: Path,
    words: Sequence[str],
    environment: Mapping[str, str],
    channels: Channels,
    mark: str = VARIABLE,
) -> tuple[int, int]:
    """Start a shim on a new run file; return its pid and a pidfd.

    Args:
        shim: the program.
        path: the path of the run file.
        words: the sandbox, options, "--", and the task's arguments.
        environment: the task's variables.
        channels: the descriptors of both.
        mark: the variable that names the run file, and marks the processes of the run.

    Raises:
        OSError: if the run file or the process cannot be created; no file is left then.
        ValueError: if no process can be given one of the arguments or variables.
    """
    fd = create_locked(path)
    try:
        given = {PREFIX + name: value for name, value in environment.items()}
        given[PREFIX + mark] = str(path)
        pid = os.posix_spawn(
            shim.argv[0],
            [*shim.argv, *words],
            given,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, channels.stdin, 0),
                (os.POSIX_SPAWN_DUP2, channels.stdout, 1),
                (os.POSIX_SPAWN_DUP2, channels.stderr, 2),
                (os.POSIX_SPAWN_DUP2, fd, 3),
                (os.POSIX_SPAWN_DUP2, channels.pipe, 4),
                *((os.POSIX_SPAWN_DUP2, each, 5 + at) for at, each in enumerate(channels.further)),
            ],
            setsid=True,
            setsigmask=ALL_SIGNALS,
            setsigdef=TO_DEFAULT,
        )
    except BaseException:
        unlink_beneath(path)
        raise
    finally:
        os.close(fd)
    shim.enter_group(pid)
    try:
        return pid, os.pidfd_open(pid)
    except OSError:
        # It has no task yet, or the kernel kills the task with it.
        os.kill(pid, SIGKILL)
        os.waitpid(pid, 0)
        unlink_beneath(path)
        raise


def create_locked(path: Path, given: run_file.Process | None = None) -> int:
    """Create a run file and lock it; return a descriptor for a shim.

    `given` is the shim that will get it, if that lives already.

    Raises:
        OSError: if that fails; no file is left then.
    """
    created = run_file.create(path, given)
    try:
        fd = move_up(created)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        unlink_beneath(path)
        raise
    return fd


def move_up(fd: int) -> int:
    """Return a descriptor above those of a shim for the file of `fd`, which may be closed."""
    if fd >= _LEAST_FD:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LEAST_FD)
    finally:
        os.close(fd)
