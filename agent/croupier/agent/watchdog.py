"""Ends whatever an agent's tasks leave behind, even if the agent was killed with SIGKILL.

One such process runs beside each agent, with nothing but the standard library in it:

    python -I -S watchdog.py FD RUN SANDBOXES

Rule: it holds the reading end FD of a pipe of which the agent alone holds the other. The
end of that file is the end of the agent, however that came about.

What belongs to the agent's tasks is known in three ways, for a program can shed each:

- each task gets a variable that carries RUN, and what it starts inherits it, even what
  makes itself a daemon; `env -i` sheds it;
- its output goes to a file below SANDBOXES, until it is sent elsewhere;
- the agent writes `+PID` and `-PID` lines for the sessions that its tasks lead, but it may
  be killed between a start and the line.

What sheds all three, with a session of its own, gets away.
"""

from __future__ import annotations

import os
import signal
import sys
import time

VARIABLE = "CROUPIER_AGENT_RUN"

# While tasks come and go fast, their lines are read in bulk; the pipe holds some 8,000.
_PAUSE_S = 0.05
# A process may be forked behind a look's back, so only two in a row that find nothing count.
_LOOK_AGAIN_S = 0.02
_LIMIT_S = 10.0


def sweep(run: str, sandboxes: str, sessions: set[int], limit_s: float = _LIMIT_S) -> int:
    """SIGKILL what carries `run`, prints to `sandboxes` or is of `sessions`, until nothing is.

    Takes at least 20 ms, at most about `limit_s`. The number of signals sent is returned.
    """
    deadline = time.monotonic() + limit_s
    spared = {os.getsid(0)}
    found = set(sessions) - spared
    sent = empty_looks = 0
    while empty_looks < 2 and time.monotonic() < deadline:
        victims = _look(run, sandboxes, found, spared)
        for pid in victims:
            sent += _kill(pid)
        empty_looks = 0 if victims else empty_looks + 1
        time.sleep(_LOOK_AGAIN_S)
    return sent


def _look(run: str, sandboxes: str, found: set[int], spared: set[int]) -> list[int]:
    """The processes to end now; adds the sessions of those that are marked to `found`."""
    mark = f"{VARIABLE}={run}".encode()
    session_of: dict[int, int] = {}
    marked: set[int] = set()
    with os.scandir("/proc") as entries:
        names = [entry.name for entry in entries if entry.name.isdigit()]
    for name in names:
        session = _session(name)
        if session is None or session in spared:
            continue
        session_of[int(name)] = session
        carries = mark in _read(f"/proc/{name}/environ").split(b"\0")
        if carries or _prints_to(name, sandboxes):
            marked.add(int(name))
            found.add(session)
    return [pid for pid, session in session_of.items() if pid in marked or session in found]


def _prints_to(pid: str, sandboxes: str) -> bool:
    for fd in (1, 2):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")  # noqa: PTH115 - spares the import
        except OSError:
            continue
        if target.startswith(f"{sandboxes}/"):
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
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        # It has ended, or is not ours to read: then its session tells.
        return b""
    parts: list[bytes] = []
    try:
        while part := os.read(fd, 65536):
            parts.append(part)
    except OSError:
        pass
    finally:
        os.close(fd)
    return b"".join(parts)


def _kill(pid: int) -> int:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return 0
    return 1


def _follow(fd: int) -> set[int]:
    """Read lines until there will be no more; the sessions that are left."""
    sessions: set[int] = set()
    rest = b""
    while chunk := os.read(fd, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            change = sessions.add if line[:1] == b"+" else sessions.discard
            change(int(line[1:]))
        time.sleep(_PAUSE_S)
    return sessions


def main() -> None:
    """Wait for the agent's end, and sweep."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    fd, run, sandboxes = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    sweep(run, sandboxes, _follow(fd))


if __name__ == "__main__":
    main()
