"""Orphan runs, which no record names: they are ended, and their run files removed.

Rules:
- A live shim is asked to end its task, since it alone finds all that descends from it. Only
  processes that are left then are killed.
- Only run files are removed: anything else in the directory is not the agent's.
- A task is recorded before it starts and forgotten after its end. So a live orphan proves that
  records are lost.

The functions raise OSError if the directory cannot be read or written to.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from croupier.agent.directories import directory, unlink_beneath
from croupier.agent.shim import run_file
from croupier.agent.shim.orphan_sweep import RunMarks, kill_given, sweep
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

# A shim tries for 10 s to kill its processes.
END_S = 12.0
_POLL_S = 0.005


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
    sweep(RunMarks([str(path) for path in orphans]))
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
        with suppress(ProcessLookupError):
            pidfd = os.pidfd_open(shim.pid)
            try:
                if shim.is_alive():
                    signal.pidfd_send_signal(pidfd, signal.SIGUSR1)
                    signal.pidfd_send_signal(pidfd, signal.SIGCONT)
            finally:
                os.close(pidfd)
    return True


def _is_alive(path: Path) -> bool:
    """Return whether a shim holds the lock and can be expected to release it."""
    return run_file.is_locked(path) and run_file.read_path(path).shim is not None
