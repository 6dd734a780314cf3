"""Run files of runs that are forgotten, for the next runs.

Making a file and removing it may cost as much as a task.

Rule: a file has the name of a run only from just before its shim gets it until the run is
forgotten, and is blank until then. So a run without a file was never started.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from croupier.agent.directories import directory, open_regular, unlink_beneath
from croupier.agent.shim import run_file
from croupier.agent.shim.start import move_up

# No run has such a name. The next agent removes these files as orphans.
_PREFIX: Final = ".spare-"
MOST_SPARE: Final = 256


class SpareRunFiles:
    """The spare files of one supervisor, in the directory of its run files."""

    def __init__(self, runs: Path) -> None:
        """Keep them in `runs`, which may be removed and made again."""
        self._runs = runs
        self._names: list[str] = []
        self._count = 0

    def close(self) -> None:
        """Remove the files."""
        for name in self._names:
            unlink_beneath(self._runs / name)
        self._names.clear()

    def put(self, run: str) -> None:
        """Take the file of a run that is over; it may have none.

        Raises:
            OSError: if it cannot be renamed or removed.
        """
        if len(self._names) >= MOST_SPARE:
            unlink_beneath(self._runs / run)
            return
        self._count += 1
        name = f"{_PREFIX}{self._count}"
        with suppress(FileNotFoundError), directory(self._runs) as at:
            os.rename(run, name, src_dir_fd=at, dst_dir_fd=at)
            self._names.append(name)

    def take(self, run: str, given: run_file.Process) -> int:
        """Return a descriptor of a locked file for a run that has none; -1: make one.

        `given` is the shim that will get it.

        Raises:
            OSError: if it cannot be written or renamed.
        """
        if not self._names:
            return -1
        name = self._names.pop()
        with suppress(FileNotFoundError), directory(self._runs) as at:
            fd = move_up(open_regular(name, os.O_RDWR, at))
            try:
                found = os.fstat(fd)
                is_whole = found.st_size == run_file.SIZE and found.st_nlink == 1
                if is_whole and run_file.try_lock(fd):
                    os.pwrite(fd, run_file.blank(given), 0)
                    os.rename(name, run, src_dir_fd=at, dst_dir_fd=at)
                    return fd
            except OSError:
                os.close(fd)
                raise
            os.close(fd)
            os.unlink(name, dir_fd=at)
        return -1
