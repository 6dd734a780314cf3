"""Why a task has no process, in words for its framework."""

from __future__ import annotations

import errno
import os
from typing import Final

from croupier.agent.shim.run_file import StartError

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126

_WHY = {
    errno.ENOENT: "no such program, or its interpreter is missing",
    errno.ENOEXEC: "exec format error: neither a program of this machine nor a script with #!",
    errno.EACCES: "permission denied: it is not executable",
}

# Errors of a machine that is short of something, whatever the program.
_SHORT = frozenset({errno.EAGAIN, errno.ENOMEM, errno.ENFILE, errno.ENOSPC, errno.EIO})


def objection(program: str, error: StartError) -> str:
    """What to tell the framework of a task whose shim could not start `program`.

    `program` is empty if nobody knows it any more.
    """
    if error.step == "exec":
        return cannot_run(program, error.number)
    if error.step == "user":
        return f"cannot become the task's user: {os.strerror(error.number)}"
    return f"cannot enter the sandbox: {os.strerror(error.number)}"


def exit_code_of(error: StartError) -> int | None:
    """What a shell would exit with; None if the program itself was not tried."""
    if error.step != "exec":
        return None
    return NOT_FOUND if error.number == errno.ENOENT else NOT_EXECUTABLE


def cause_on_agent(error: StartError) -> str:
    """What failed on the agent as a shim started its task; empty if the task is at fault."""
    # Another user than the agent may be kept out of the work dir by its own permissions.
    is_away = error.step == "sandbox" and error.number not in (errno.EACCES, errno.EPERM)
    if is_away or error.number in _SHORT:
        return f"cannot start a task, at step {error.step}: {os.strerror(error.number)}"
    return ""


def cannot_start(program: str, error: OSError) -> str:
    """What to tell the framework of a task whose shim itself could not be started."""
    if error.errno == errno.E2BIG:
        return cannot_run(program, errno.E2BIG)
    return f"cannot start the shim of {program!r}: {error.strerror or error}"


def cannot_run(program: str, number: int) -> str:
    """The words for the system's error `number` of an exec."""
    what = repr(program) if program else "its program"
    return f"cannot run {what}: {_WHY.get(number) or os.strerror(number)}"
