"""A task in a box, for the interpreted shim: namespaces that bubblewrap makes around the task.

box.h has a counterpart of each function here, and describes the channel.
"""

from __future__ import annotations

import errno
import os

from croupier.agent.shim.restrictions import Failed, Options

CHANNEL, FILTER, FIRST_INSIDE = 3, 5, 4
INSIDE = "--inside"
STEP = "isolation:boxed"
MESSAGE = 64
# Above the numbers that are handed over.
_LEAST = 10


def hand_over(options: Options, channel: int) -> None:
    """Give the child the descriptors of bubblewrap and of the shim inside.

    Raises:
        Failed: if one cannot be opened.
    """
    step = STEP
    try:
        writing = _moved(channel)
        step = "isolation:seccomp"
        for path in options.seccomp:
            os.dup2(_moved(os.open(path, os.O_RDONLY | os.O_CLOEXEC)), FILTER)
        os.dup2(writing, CHANNEL)
    except OSError as error:
        raise Failed(step, error.errno or errno.EINVAL) from None


def _moved(fd: int) -> int:
    # Few tasks need it.
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LEAST)


def await_start(channel: int, box: int) -> None:
    """Wait until the task runs inside, or bubblewrap was killed, which is the end of the task.

    Raises:
        Failed: if the task cannot be started.
    """
    kind, *words = _message(channel).split() or [""]
    if kind == "task":
        return
    end = os.waitid(os.P_PID, box, os.WEXITED | os.WNOWAIT)
    if kind == "error" and len(words) == 2:
        raise Failed(words[0], int(words[1]))
    if end is not None and end.si_code == os.CLD_EXITED:
        raise Failed(STEP, errno.EPROTO)


def find_signal(channel: int, end: str) -> str:
    """Return how the task ended, from how bubblewrap ended: `exit CODE` or `signal N`."""
    os.set_blocking(channel, False)
    kind, _, number = _message(channel).partition(" ")
    is_signal = kind == "signal" and number.isdigit() and end == f"exit {128 + int(number)}\n"
    return f"signal {number}\n" if is_signal else end


def _message(channel: int) -> str:
    """Read one line, without its end: the next one may be there already."""
    told = b""
    while len(told) < MESSAGE:
        try:
            byte = os.read(channel, 1)
        except OSError:
            break
        if byte in (b"", b"\n"):
            break
        told += byte
    return told.decode(errors="replace")


def tell(text: str) -> None:
    """Write a line to the channel."""
    try:
        os.write(CHANNEL, text.encode())
    except OSError:
        return
