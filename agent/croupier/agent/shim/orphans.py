"""Processes that a killed shim has left, and orphan runs, which no record names: both are ended.

A live shim is a subreaper: it finds all that descends from its task. Once it is killed, the kernel
kills the task's first process, and the agent knows the others by three marks:

- Each task gets a variable that names its run file. Its children inherit it, daemons too, unless
  they drop it, as `env -i` does.
- A process writes its output to the task's sandbox, unless it is redirected.
- A process is in the session of a process with one of these marks. A session counts only while
  such a process exists, because the kernel reuses session numbers.

A shim is found by the run file in its arguments: if the agent is not root, it may read neither the
variables nor the descriptors of its shims, which are not dumpable. One that was given the run and
has not begun it has no mark; the run file names it. A process that drops all three marks and
outlives its shim escapes.

Rules:
- A live shim is asked to end its task, since it alone finds all that descends from it. Only
  processes that are left then are killed.
- Only run files are removed: anything else in the directory is not the agent's.
- A task is recorded before it starts and forgotten after its end. So a live orphan proves that
  records are lost.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from croupier.agent.directories import closing, directory, unlink_beneath
from croupier.agent.sandbox import STREAMS
from croupier.agent.shim import run_file
from croupier.agent.shim.run_file import Process, stat_of
from croupier.process.logging import get_logger

# A kernel starts programs with a quarter of the limit of the stack, which is 8 MiB by default.
MOST_BYTES: Final = 2 * 1024 * 1024
VARIABLE = "CROUPIER_TASK_RUN"
# The same of a command beside a task: it has the mark of the task, too, and ends with it.
EXEC_VARIABLE = "CROUPIER_EXEC_RUN"
# Variables with this prefix carry a task's environment to its shim, without effect on the shim.
PREFIX = "T."
# An option of the shim, which names its run file.
OPTION = "run="
# A process may fork during a scan, so the sweep ends after two scans in a row that find nothing.
_SCAN_AGAIN_S = 0.02
LIMIT_S = 10.0
_KILLED_S = 1.0
_log = get_logger("croupier.agent")
# A shim tries for 10 s to kill its processes.
END_S = 12.0
_POLL_S = 0.005


def read_own_words(path: str) -> bytes:
    """Return the beginning of /proc/PID/environ or /proc/PID/cmdline, `MOST_BYTES` at most.

    Raises OSError if the process has ended, or may not be read.
    """
    parts, left = [], MOST_BYTES
    with closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as fd:
        while left and (part := os.read(fd, left)):
            parts.append(part)
            left -= len(part)
    return b"".join(parts)


def sweep(
    run_files: Collection[str], sandboxes: Collection[str] = (), sessions: Collection[int] = ()
) -> None:
    """Kill the runs' processes and shims, by their marks, until there are none.

    Scans all processes of the machine, which takes 40 ms more if one is found; about 10 s at most.

    Args:
        run_files: the absolute paths of the run files, which VARIABLE holds.
        sandboxes: the absolute paths of the tasks' sandboxes.
        sessions: sessions that the tasks led until now, so that they are not reused yet.
    """
    deadline = time.monotonic() + LIMIT_S
    spared = {os.getsid(0)}
    found = set(sessions) - spared
    empty_scans = 0 if found else 1
    while empty_scans < 2 and time.monotonic() < deadline:
        victims = _scan(run_files, sandboxes, found, spared)
        for pid in victims:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        empty_scans = 0 if victims else empty_scans + 1
        if victims or empty_scans < 2:
            time.sleep(_SCAN_AGAIN_S)


def kill_given(shim: Process) -> None:
    """Kill a shim that was given a run and has not begun it, and wait for its end, 1 s at most."""
    with suppress(ProcessLookupError), closing(os.pidfd_open(shim.pid)) as pidfd:
        if shim.is_alive():
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            select.select([pidfd], (), (), _KILLED_S)


def _scan(
    run_files: Collection[str], sandboxes: Collection[str], found: set[int], spared: set[int]
) -> list[int]:
    """Return the processes to kill, and add the sessions of the marked ones to `found`."""
    variables = {
        f"{prefix}{variable}={path}".encode(errors="surrogateescape")
        for path in run_files
        for prefix in ("", PREFIX)
        for variable in (VARIABLE, EXEC_VARIABLE)
    }
    options = {f"{OPTION}{path}".encode(errors="surrogateescape") for path in run_files}
    output = {f"{path}/{stream}" for path in sandboxes for stream in STREAMS}
    session_of: dict[int, int] = {}
    marked: set[int] = set()
    with os.scandir("/proc") as entries:
        names = [entry.name for entry in entries if entry.name.isdigit()]
    for name in names:
        fields = stat_of(name)
        session = int(fields[3]) if fields else None
        if session is None or session in spared:
            continue
        session_of[int(name)] = session
        environment = _read_words(f"/proc/{name}/environ").split(b"\0")
        if (
            not variables.isdisjoint(environment)
            or (output and _prints_to(name, output))
            or not options.isdisjoint(_read_words(f"/proc/{name}/cmdline").split(b"\0", 16)[:16])
        ):
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


def _read_words(path: str) -> bytes:
    try:
        return read_own_words(path)
    except OSError:
        # It has ended, or the agent may not read it: then only its session is known.
        return b""


def find_live_orphans(runs: Path, known: Collection[str]) -> list[Path]:
    """Return the run files of live runs in the directory that are not `known`.

    A shim that could not start its task is about to end, and does not count.
    """
    return [
        path
        for path in _orphans(runs, known)
        if run_file.is_locked(path) and run_file.read_path(path).error is None
    ]


def end_orphans(runs: Path, known: Collection[str]) -> int:
    """End and remove the runs in the directory that are not `known`; return how many lived.

    Such runs are left by an agent that was killed before it forgot them, or that lost records.
    Blocks until they have ended, for up to about 20 s if a process cannot be killed.
    """
    orphans = _orphans(runs, known)
    if not orphans:
        return 0
    ended = sum(map(_ask_to_end, orphans))
    deadline = time.monotonic() + END_S
    while any(map(_is_alive, orphans)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    # Kill shims that did not end, and processes that shims left when they were killed.
    sweep([str(path) for path in orphans])
    for path in orphans:
        given = run_file.read_path(path).given
        if given is not None and run_file.is_locked(path):
            kill_given(given)
        if run_file.is_locked(path):
            _log.error("orphan_run_does_not_end", run=path.name)
        else:
            unlink_beneath(path)
    return ended


def _orphans(runs: Path, known: Collection[str]) -> list[Path]:
    with directory(runs, to_list=True) as fd, os.scandir(fd) as entries:
        names = sorted({entry.name for entry in entries}.difference(known))
    return [path for path in map(runs.joinpath, names) if run_file.is_run_file(path)]


def _ask_to_end(path: Path) -> bool:
    """Ask the shim to end its task; return whether one lives."""
    shim = run_file.read_path(path).shim
    if not run_file.is_locked(path):
        return False
    if shim is not None:
        with suppress(ProcessLookupError), closing(os.pidfd_open(shim.pid)) as pidfd:
            if shim.is_alive():
                signal.pidfd_send_signal(pidfd, signal.SIGUSR1)
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
    return True


def _is_alive(path: Path) -> bool:
    """Return whether a shim holds the lock and can be expected to release it."""
    return run_file.is_locked(path) and run_file.read_path(path).shim is not None
