"""Starts a shim with its descriptors, and tells frameworks why a start has failed.

A shim gets its locked run file, the pipe and the task's streams. `posix_spawn` does not run Python
code in the child. `preexec_fn`, user or group of `subprocess` would, and gRPC's threads then crash
the child before its exec.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGKILL, SIGSTOP
from typing import Final

from croupier.agent.directories import closing, open_beneath, unlink_beneath
from croupier.agent.shim import run_file
from croupier.agent.shim.build import Shim
from croupier.agent.shim.orphans import PREFIX, VARIABLE
from croupier.agent.shim.run_file import StartError

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126

_WHY = {
    errno.ENOENT: "no such program, or its interpreter is missing",
    errno.ENOEXEC: "exec format error: neither a program of this machine nor a script with #!",
    errno.EACCES: "permission denied: it is not executable",
}

OWN_USER: Final = (
    " by the uid of its own that the task has on this agent; put it where all users may execute"
    " it, or name a user for the task"
)

# Errors of a machine that lacks a resource, regardless of the program.
_SHORT = frozenset({errno.EAGAIN, errno.ENOMEM, errno.ENFILE, errno.ENOSPC, errno.EIO})
# The shim's descriptors are 0 to 6. Descriptors from 10 on are not overwritten by the dup2 calls.
_LEAST_FD = 10
_SIGNALS = signal.valid_signals()


def describe(program: str, error: StartError, *, is_own_user: bool = False) -> str:
    """Return the message for a shim that could not start `program`, empty if unknown.

    `is_own_user`: whether the task has a uid of its own.
    """
    if error.step == "exec":
        hint = OWN_USER if is_own_user and error.number == errno.EACCES else ""
        return cannot_run(program, error.number) + hint
    if error.step == "user":
        return f"cannot become the task's user: {os.strerror(error.number)}"
    if error.step == "isolation" and error.option == "boxed":
        return "cannot isolate the task: bubblewrap failed; stderr of the task tells why"
    if error.step == "isolation":
        return f"cannot isolate the task ({error.option}): {os.strerror(error.number)}"
    return f"cannot enter the sandbox: {os.strerror(error.number)}"


def as_shell(error: StartError, program: str, search_path: str) -> StartError:
    """Return the error that a shell would tell: a program that is nowhere is not found.

    The kernel tells EACCES for a directory of PATH that the task's user may not enter, whether the
    program is there or not. The agent may enter more.
    """
    is_denied = error.step == "exec" and error.number == errno.EACCES
    if is_denied and "/" not in program and shutil.which(program, os.F_OK, search_path) is None:
        return StartError(error.step, errno.ENOENT)
    return error


def exit_code_of(error: StartError) -> int | None:
    """Return the exit code of a shell; None if the program itself was not tried."""
    if error.step != "exec":
        return None
    return NOT_FOUND if error.number == errno.ENOENT else NOT_EXECUTABLE


def cause_on_agent(error: StartError) -> str:
    """Return the failure of the agent; empty if the task is at fault."""
    # The permissions of the work dir may keep another user than the agent's out.
    is_missing = error.step == "sandbox" and error.number not in (errno.EACCES, errno.EPERM)
    # A program that was cut off; if the disk is at fault, the health check finds that.
    is_cut_off = error.step == "exec" and error.number == errno.EIO
    is_short = error.number in _SHORT and not is_cut_off
    if is_missing or error.step == "isolation" or is_short:
        return f"cannot start a task, at step {error.step}: {os.strerror(error.number)}"
    return ""


def cannot_start(program: str, error: OSError) -> str:
    """Return the message for a shim that could not be started itself."""
    if error.errno == errno.E2BIG:
        return cannot_run(program, errno.E2BIG)
    return f"cannot start the shim of {program!r}: {error.strerror or error}"


def cannot_run(program: str, number: int) -> str:
    """Return the message for the error `number` of an exec."""
    what = repr(program) if program else "its program"
    return f"cannot run {what}: {_WHY.get(number) or os.strerror(number)}"


def start_shim(
    shim: Shim,
    path: Path,
    words: Sequence[str],
    environment: Mapping[str, str],
    channels: Sequence[int],
    mark: str = VARIABLE,
) -> tuple[int, int]:
    """Start a shim on a new run file; return its pid and a pidfd.

    `words` are the sandbox, options, "--", and the task's arguments. `channels` are descriptors of
    the task's streams, of the pipe for reports to the agent, and those that an option needs. The
    variable `mark` names the run file, and marks the processes of the run.

    Raises:
        OSError: if the run file or the process cannot be created; no file is left then.
        ValueError: if no process can be given one of the arguments or variables.
    """
    fd = create_locked(path)
    try:
        given = {PREFIX + name: value for name, value in environment.items()}
        given[PREFIX + mark] = str(path)
        return spawn_shim(shim, words, given, (*channels[:3], fd, *channels[3:]))
    except BaseException:
        unlink_beneath(path)
        raise
    finally:
        os.close(fd)


def spawn_shim(
    shim: Shim, words: Sequence[str], environment: Mapping[str, str], descriptors: Sequence[int]
) -> tuple[int, int]:
    """Start a shim with these descriptors as 0, 1 and so on; return its pid and a pidfd."""
    pid = os.posix_spawn(
        shim.argv[0],
        [*shim.argv, *words],
        environment,
        file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(descriptors)],
        setsid=True,
        setsigmask=_SIGNALS,
        setsigdef=_SIGNALS - {SIGKILL, SIGSTOP},
    )
    shim.enter_group(pid)
    try:
        return pid, os.pidfd_open(pid)
    except OSError:
        # It has no task yet, or the kernel kills the task with it.
        os.kill(pid, SIGKILL)
        os.waitpid(pid, 0)
        raise


def create_locked(path: Path, given: run_file.Process | None = None) -> int:
    """Create a run file in its full size, and lock it; return a descriptor for a shim.

    It must not exist already. `given` is the shim that will get it, if that lives already. Raises
    OSError if that fails; no file is left then.
    """
    created = open_beneath(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        fd = move_up(created)
        try:
            if os.write(fd, run_file.blank(given)) != run_file.SIZE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
    except BaseException:
        unlink_beneath(path)
        raise
    return fd


def move_up(fd: int) -> int:
    """Return a descriptor above those of a shim for the file of `fd`, which may be closed."""
    if fd >= _LEAST_FD:
        return fd
    with closing(fd):
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LEAST_FD)
