"""The file of a run: who watches over the task, who runs it, and how it ended.

Rule: it has its full size before anything is started, and each of its lines is written once,
in place and in one go. So a full disk shows before the start and never loses an end, and a
line that is not whole is not there.

Four lines of 64 bytes, padded with blanks; the agent writes the first, the shim the others:

    croupier-run 1
    shim PID START
    task PID START | error STEP ERRNO
    exit CODE | signal NUMBER
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from dataclasses import dataclass
from pathlib import Path

from croupier.agent.directories import open_beneath, unlink_beneath

LINE = 64
HEADING = b"croupier-run 1\n"
SIZE = 4 * LINE
_BLANK = HEADING.ljust(LINE) + b" " * (SIZE - LINE)
# Of an open: a link, no regular file, a socket, or nothing is there.
_NO_FILE = (errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.ENOENT)
_PROCESS = re.compile(rb"(shim|task) ([1-9][0-9]{0,9}) ([0-9]{1,20})\n")
_ERROR = re.compile(rb"error (user|sandbox|exec) ([0-9]{1,4})\n")
_END = re.compile(rb"(exit|signal) ([0-9]{1,3})\n")


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine.

    Attributes:
        started: in the kernel's ticks since the machine's start; 0 if that is not known.
    """

    pid: int
    started: int

    def is_of_that_start(self) -> bool:
        """Whether the process that has the number now is the one that was meant."""
        now = started(self.pid)
        return now is not None and self.started in (0, now)


@dataclass(frozen=True, slots=True)
class StartError:
    """Why there is no task: the step that failed, and the system's error number."""

    step: str
    number: int


@dataclass(frozen=True, slots=True)
class End:
    """How the task's first process ended; one of the two is set."""

    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a run file says; what is not there, or not whole, is None.

    Attributes:
        is_whole: the agent finished making the file, and what is there can be read.
    """

    is_whole: bool = False
    shim: Process | None = None
    task: Process | None = None
    error: StartError | None = None
    end: End | None = None


def create(path: Path) -> int:
    """Make a run file with all its room; a descriptor of it.

    Raises:
        OSError: if it is there already, or the disk is full.
    """
    fd = open_beneath(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        if os.write(fd, _BLANK) != SIZE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except BaseException:
        os.close(fd)
        unlink_beneath(path)
        raise
    return fd


def open_to_read(path: Path) -> int:
    """A descriptor of a run file.

    Raises:
        OSError: if there is none, or no regular file is in its place.
    """
    return open_beneath(path, os.O_RDONLY)


def read(fd: int) -> RunRecord:
    """What the file says now.

    Raises:
        OSError: if it cannot be read.
    """
    return parse(os.pread(fd, SIZE + 1, 0))


def try_lock(fd: int) -> bool:
    """Whether nobody holds the file's lock; then `fd` does."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path) -> bool:
    """Whether somebody holds the file's lock: its shim lives.

    Raises:
        OSError: if there is no such file, or it is a link.
    """
    fd = open_to_read(path)
    try:
        return not try_lock(fd)
    finally:
        os.close(fd)


def is_ours(path: Path) -> bool:
    """Whether it is a run file, or one that was never finished: it may be removed.

    Raises:
        OSError: if that cannot be found out.
    """
    try:
        fd = open_to_read(path)
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return False
    try:
        content = os.pread(fd, SIZE + 1, 0)
    finally:
        os.close(fd)
    if content.startswith(HEADING):
        return True
    # Room that was taken when the machine lost its power.
    return len(content) <= SIZE and not content.strip(b" \0")


def parse(content: bytes) -> RunRecord:
    """Make sense of what was read."""
    if len(content) != SIZE or not content.startswith(HEADING):
        return RunRecord()
    lines = [content[at : at + LINE] for at in range(LINE, SIZE, LINE)]
    shim, start, end = _process(b"shim", lines[0]), parse_start(lines[1]), _end(lines[2])
    is_whole = all(
        found is not None or not line.strip()
        for line, found in zip(lines, (shim, start, end), strict=True)
    )
    return RunRecord(
        is_whole,
        shim,
        start if isinstance(start, Process) else None,
        start if isinstance(start, StartError) else None,
        end if is_whole else None,
    )


def parse_start(line: bytes) -> Process | StartError | None:
    """Make sense of the line that says how the start went."""
    match = _ERROR.match(line)
    return StartError(match[1].decode(), int(match[2])) if match else _process(b"task", line)


def started(pid: int) -> int | None:
    """When the process began, in ticks since the machine's start; None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - at each adoption
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _process(name: bytes, line: bytes) -> Process | None:
    match = _PROCESS.match(line)
    if match is None or match[1] != name:
        return None
    return Process(int(match[2]), int(match[3]))


def _end(line: bytes) -> End | None:
    match = _END.match(line)
    if match is None:
        return None
    number = int(match[2])
    return End(exit_code=number) if match[1] == b"exit" else End(signal=number)
