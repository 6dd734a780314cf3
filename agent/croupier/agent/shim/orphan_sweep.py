"""What is left of a task whose shim was killed: found by what it carries, and killed.

A shim that lives finds whatever descends from its task, for it is a subreaper. Once it is
killed the kernel kills the task's first process, and the rest is known in three ways:

- each task gets a variable that names its run file, and what it starts inherits it, even
  what makes itself a daemon; `env -i` sheds it;
- its output goes to its sandbox, until it is sent elsewhere;
- it is of a session that a process with either of these is of. Sessions are taken for the
  task's only while one of those is there: their numbers are given away again.

What sheds all three, and outlives its shim, gets away.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection
from dataclasses import dataclass

from croupier.agent.sandbox import STREAMS

VARIABLE = "CROUPIER_TASK_RUN"
# What carries a task's environment to a shim without any effect on the shim.
PREFIX = "T."

# A process may be forked behind a look's back, so only two in a row that find nothing count.
_LOOK_AGAIN_S = 0.02
LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Remains:
    """How to know the processes of runs.

    Attributes:
        marks: the absolute paths of the run files, which VARIABLE holds.
        sandboxes: the absolute paths of the tasks' sandboxes.
        sessions: led by the tasks just now, so that their numbers cannot be another's.
    """

    marks: Collection[str]
    sandboxes: Collection[str] = ()
    sessions: Collection[int] = ()


def sweep(remains: Remains, limit_s: float = LIMIT_S) -> int:
    """SIGKILL the runs' processes and shims until there are none; how many signals it took.

    Takes a look at each process of the machine, and 40 ms more if any is found; at most about
    `limit_s`.
    """
    deadline = time.monotonic() + limit_s
    spared = {os.getsid(0)}
    found = set(remains.sessions) - spared
    sent = 0
    empty_looks = 0 if found else 1
    while empty_looks < 2 and time.monotonic() < deadline:
        victims = _look(remains, found, spared)
        for pid in victims:
            sent += _kill(pid)
        empty_looks = 0 if victims else empty_looks + 1
        if victims or empty_looks < 2:
            time.sleep(_LOOK_AGAIN_S)
    return sent


def _look(remains: Remains, found: set[int], spared: set[int]) -> list[int]:
    """The processes to end now; adds the sessions of those that are marked to `found`."""
    marks = {
        f"{prefix}{VARIABLE}={mark}".encode(errors="surrogateescape")
        for mark in remains.marks
        for prefix in ("", PREFIX)
    }
    output = {f"{path}/{stream}" for path in remains.sandboxes for stream in STREAMS}
    session_of: dict[int, int] = {}
    marked: set[int] = set()
    with os.scandir("/proc") as entries:
        names = [entry.name for entry in entries if entry.name.isdigit()]
    for name in names:
        session = _session(name)
        if session is None or session in spared:
            continue
        session_of[int(name)] = session
        variables = _read(f"/proc/{name}/environ").split(b"\0")
        if not marks.isdisjoint(variables) or (output and _prints_to(name, output)):
            marked.add(int(name))
            found.add(session)
    return [pid for pid, session in session_of.items() if pid in marked or session in found]


def _prints_to(pid: str, output: set[str]) -> bool:
    for fd in (1, 2):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")  # noqa: PTH115 - for each process
        except OSError:
            continue
        if target.removesuffix(" (deleted)") in output:
            return True
    return False


def _session(pid: str) -> int | None:
    """The session of a process; None if it has ended."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) < 4 or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[3])


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - for each process
            return file.readall() or b""
    except OSError:
        # It has ended, or is not ours to read: then its session tells.
        return b""


def _kill(pid: int) -> int:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return 0
    return 1
