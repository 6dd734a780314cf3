"""The run file: the pids of a run's shim and task, and how the task ended.

Rule: the file has its full size before a process is started, and each line is written once, in
place and in one write. So a full disk fails the start and never loses an end, and a line is either
whole or absent. Functions that take a path or descriptor raise OSError if the system refuses.

It has five lines of 64 bytes, padded with blanks. The agent writes the first, the shim the others.
The padding of the first names the shim that is given the run, if that lived before.

    croupier-run 2
    shim PID START
    task PID START | error STEP ERRNO
    exit CODE | signal NUMBER
    usage CPU_MS MAXRSS_KB READ_KB WRITTEN_KB
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from croupier.agent.directories import closing, open_beneath
from croupier.model.isolation import Usage

LINE = 64
HEADING = b"croupier-run 2\n"
SIZE = 5 * LINE
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_BLANK = HEADING.ljust(LINE) + b" " * (SIZE - LINE)
# Errors of open: there is a link, no regular file, a socket, or nothing.
_NO_FILE = (errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.ENOENT)
_PROCESS = re.compile(rb"(shim|task|given) ([1-9][0-9]{0,9}) ([0-9]{1,20})\n")
_ERROR = re.compile(rb"error (user|sandbox|exec|isolation)(?::([a-z-]+))? ([0-9]{1,4})\n")
_END = re.compile(rb"(exit|signal) ([0-9]{1,3})\n")
# The begins of the lines on a start, and of the report of a silent end.
START = (b"task", b"error")
_SILENT = b"silent "
_USAGE = re.compile(rb"usage" + rb" ([0-9]{1,12})" * 4 + rb"\n")


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine, and its start in the kernel's ticks since boot; 0: unknown."""

    pid: int
    started: int

    def is_alive(self) -> bool:
        """Return whether the process lives: another one may have its pid now."""
        now = start_of(self.pid)
        return now is not None and self.started in (0, now)

    def age_s(self) -> float | None:
        """Return the time since its start, which counts suspension; None if that is unknown."""
        if not self.started:
            return None
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - self.started / _TICKS_PER_S)


@dataclass(frozen=True, slots=True)
class StartError:
    """The step of a start that failed, the error number, and at step isolation the option."""

    step: str
    number: int
    option: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """The end of the task's first process: an exit code or a signal."""

    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The content of a run file; absent and damaged lines are None.

    Attributes:
        is_whole: whether the file was created completely, and no line is damaged.
        usage: of the task's processes that were waited for; it is written before the end.
        given: the shim that the run was given to, if that lived before.
        is_silent: whether the task is known to have written nothing; a file never tells that.
    """

    is_whole: bool = False
    shim: Process | None = None
    task: Process | None = None
    error: StartError | None = None
    end: End | None = None
    usage: Usage | None = None
    given: Process | None = None
    is_silent: bool = False


def blank(given: Process | None) -> bytes:
    """Return the content of a new run file; `given` is the shim that gets it, if that lives."""
    if given is None:
        return _BLANK
    heading = HEADING + b"given %d %d\n" % (given.pid, given.started)
    return heading.ljust(LINE) + _BLANK[LINE:]


def read(fd: int) -> RunRecord:
    """Read an open run file."""
    return parse(os.pread(fd, SIZE + 1, 0))


def read_path(path: Path) -> RunRecord:
    """Read a run file."""
    with closing(open_beneath(path, os.O_RDONLY)) as fd:
        return read(fd)


def try_lock(fd: int) -> bool:
    """Lock the file unless another descriptor holds the lock; return whether `fd` holds it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path) -> bool:
    """Return whether the file is locked: its shim lives."""
    with closing(open_beneath(path, os.O_RDONLY)) as fd:
        return not try_lock(fd)


def is_run_file(path: Path) -> bool:
    """Return whether this is a run file, perhaps an unfinished one."""
    try:
        with closing(open_beneath(path, os.O_RDONLY)) as fd:
            content = os.pread(fd, SIZE + 1, 0)
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return False
    if content.startswith(HEADING):
        return True
    # The machine may have lost power after the file got its size.
    return len(content) <= SIZE and not content.strip(b" \0")


def parse(content: bytes) -> RunRecord:
    """Parse the content of a run file."""
    if len(content) != SIZE or not content.startswith(HEADING):
        return RunRecord()
    lines = [content[at : at + LINE] for at in range(LINE, SIZE, LINE)]
    shim, start, end = _process(b"shim", lines[0]), parse_start(lines[1]), _end(lines[2])
    usage = _usage(lines[3])
    is_whole = all(
        found is not None or not line.strip()
        for line, found in zip(lines, (shim, start, end, usage), strict=True)
    )
    return RunRecord(
        is_whole,
        shim,
        start if isinstance(start, Process) else None,
        start if isinstance(start, StartError) else None,
        end if is_whole else None,
        usage if is_whole else None,
        _process(b"given", content[len(HEADING) : LINE]),
    )


def parse_end(line: bytes) -> RunRecord | None:
    """Parse the line on the end that a waiting shim reports; None if it is damaged."""
    told, usage, numbers = line.removeprefix(_SILENT).partition(b"usage")
    end, used = _end(told.strip() + b"\n"), _usage(usage + numbers)
    if end is None or used is None:
        return None
    return RunRecord(True, end=end, usage=used, is_silent=line.startswith(_SILENT))


def parse_start(line: bytes) -> Process | StartError | None:
    """Parse the line on the start."""
    match = _ERROR.match(line)
    if match is None:
        return _process(b"task", line)
    return StartError(match[1].decode(), int(match[3]), (match[2] or b"").decode())


def start_of(pid: int) -> int | None:
    """Return when the process started, in ticks since boot; None if it does not live."""
    fields = stat_of(pid)
    return int(fields[19]) if fields else None


def stat_of(pid: int | str) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name; none if the process does not live."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - often
            fields = file.readall().rpartition(b")")[2].split()
    except OSError:
        return []
    return [] if fields[:1] in ([b"Z"], [b"X"]) else fields


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


def _usage(line: bytes) -> Usage | None:
    match = _USAGE.match(line)
    if match is None:
        return None
    cpu_ms, peak_kb, read_kb, written_kb = map(int, match.groups())
    return Usage(
        cpu_ms,
        memory_peak=peak_kb * 1024,
        read_bytes=read_kb * 1024,
        written_bytes=written_kb * 1024,
    )
