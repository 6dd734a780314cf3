"""Runs that nobody knows any more: ended, and their files removed.

Rules:
- A shim that lives is asked to end its task, for it alone finds all that descends from it;
  only what does not heed that is killed.
- Only run files are removed: whatever else is in the directory is somebody else's.
- A task is recorded before it is started and forgotten after its end. So a shim that lives and
  that no record names proves that records are lost.
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
from croupier.agent.shim.orphan_sweep import Remains, sweep
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

# A shim gives itself 10 s for what cannot be killed.
END_S = 12.0
_POLL_S = 0.005


def find_living(runs: Path, known: Collection[str]) -> list[Path]:
    """The files of runs in the directory that live and are not `known`.

    A shim that could not start its task is about to end, and counts as none.

    Raises:
        OSError: if the directory cannot be read.
    """
    return [
        path
        for path in _strays(runs, known)
        if run_file.is_locked(path) and _read(path).error is None
    ]


def end_strays(runs: Path, known: Collection[str]) -> int:
    """End and remove the runs in the directory that are not `known`; how many lived.

    Blocks until they have ended; for up to about 20 s where something cannot be killed.

    Raises:
        OSError: if the directory cannot be read or written to.
    """
    strays = _strays(runs, known)
    if not strays:
        return 0
    ended = sum(map(_ask_to_end, strays))
    deadline = time.monotonic() + END_S
    while any(map(_is_alive, strays)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    # What did not heed it, and what shims have left that were killed before.
    sweep(Remains([str(path) for path in strays]))
    for path in strays:
        if run_file.is_locked(path):
            _log.error("stray_does_not_end", run=path.name)
        else:
            unlink_beneath(path)
    return ended


def _strays(runs: Path, known: Collection[str]) -> list[Path]:
    with directory(runs, to_list=True) as fd, os.scandir(fd) as entries:
        names = sorted({entry.name for entry in entries}.difference(known))
    return [path for path in map(runs.joinpath, names) if run_file.is_ours(path)]


def _ask_to_end(path: Path) -> bool:
    """Tell the shim, if one lives, to end its task; whether one lives."""
    shim = _read(path).shim
    if not run_file.is_locked(path):
        return False
    if shim is not None:
        with suppress(ProcessLookupError):
            pidfd = os.pidfd_open(shim.pid)
            try:
                if shim.is_of_that_start():
                    signal.pidfd_send_signal(pidfd, signal.SIGUSR1)
                    signal.pidfd_send_signal(pidfd, signal.SIGCONT)
            finally:
                os.close(pidfd)
    return True


def _is_alive(path: Path) -> bool:
    """Whether a shim holds the file that can be expected to let it go."""
    return run_file.is_locked(path) and _read(path).shim is not None


def _read(path: Path) -> run_file.RunRecord:
    fd = run_file.open_to_read(path)
    try:
        return run_file.read(fd)
    finally:
        os.close(fd)
