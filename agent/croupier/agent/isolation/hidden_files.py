"""Files of tasks that their sandboxes do not show: removed ones that are open, and those in /tmp.

A file that a task has removed keeps its blocks while a process has it open. Files in /tmp and
/var/tmp are known by the task's own uid. What is in memory counts for the memory limit, not here.

Rule: a look at the machine serves all tasks and takes a bounded time. What it does not reach in
that time is not counted. Neither are removed files that are only mapped, or that are on their way
through a socket, and files outside of the sandbox of an account that tasks share.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from croupier.agent.directories import open_directory
from croupier.agent.isolation.disk_size import BLOCK, DiskWalk
from croupier.agent.isolation.uid_range import UidRange
from croupier.agent.secret_files import is_in_memory

SHARED: Final = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - of tasks
# The most time for the shared directories, and for the open files of one task.
LOOK_S: Final = 0.25
_STEP_FILES: Final = 1_000


class FileTotals(NamedTuple):
    """The bytes of some files, and their number."""

    size: int = 0
    files: int = 0

    def __add__(self, other: object) -> FileTotals:
        """Return the sums."""
        assert isinstance(other, FileTotals)
        return FileTotals(self.size + other.size, self.files + other.files)


NOTHING: Final = FileTotals()


class HiddenFiles:
    """The files that a look has found."""

    def __init__(self, uids: UidRange | None, shared: Iterable[Path] = SHARED) -> None:
        """Look for files of `uids`, which each belong to one task, in `shared` directories."""
        self._uids = uids
        self._shared = [] if uids is None else [each for each in shared if not is_in_memory(each)]
        self._by_uid: dict[int, FileTotals] = {}
        self._pids: dict[str, list[int]] = {}

    def look(self, shims: Mapping[int, str]) -> None:
        """Find the processes below `shims`, by run, and the files in shared directories."""
        self._pids = processes_below(shims)
        self._by_uid = {}
        until = monotonic() + LOOK_S
        for path in self._shared:
            with suppress(OSError):
                self._add_shared(path, until)

    def of(self, run: str, sandbox: int) -> FileTotals:
        """Return the hidden files of a run, whose sandbox is open as a descriptor.

        Raises:
            OSError: if the sandbox is gone.
        """
        home = os.fstat(sandbox)
        found = removed_files(self._pids.get(run, ()), home.st_dev)
        return found + self._by_uid.get(home.st_uid, NOTHING)

    def _add_shared(self, path: Path, until: float) -> None:
        assert self._uids is not None
        shared = open_directory(path, to_list=True)
        try:
            with os.scandir(shared) as entries:
                for entry in entries:
                    if monotonic() > until:
                        return
                    with suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        if found.st_uid in self._uids:
                            more = _size_of(entry.name, shared, found, until)
                            self._by_uid[found.st_uid] = (
                                self._by_uid.get(found.st_uid, NOTHING) + more
                            )
        finally:
            os.close(shared)


def processes_below(shims: Mapping[int, str]) -> dict[str, list[int]]:
    """Return the processes that descend from shims, by the run of the shim. O(processes)."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - only names
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    found: dict[str, list[int]] = {}
    for pid in parents:
        above = pid
        while above and above not in shims:
            above = parents.get(above, 0)
        if above:
            found.setdefault(shims[above], []).append(pid)
    return found


def removed_files(pids: Iterable[int], device: int) -> FileTotals:
    """Return the removed files of a file system that processes have open, each once."""
    blocks: dict[int, int] = {}
    until = monotonic() + LOOK_S
    for pid in pids:
        # Processes end meanwhile, and an agent that is not root may not read all of them.
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                if monotonic() > until:
                    break
                with suppress(OSError):
                    found = entry.stat()
                    is_removed = found.st_nlink == 0 and stat.S_ISREG(found.st_mode)
                    if is_removed and found.st_dev == device:
                        blocks[found.st_ino] = found.st_blocks
    return FileTotals(BLOCK * sum(blocks.values()), len(blocks))


def _size_of(name: str, shared: int, found: os.stat_result, until: float) -> FileTotals:
    if not stat.S_ISDIR(found.st_mode):
        return FileTotals(found.st_blocks * BLOCK, 1)
    with suppress(OSError):
        walk = DiskWalk(open_directory(name, shared, to_list=True))
        while monotonic() < until and not walk.step(_STEP_FILES):
            pass
        walk.close()
        return FileTotals(walk.size, walk.files + 1)
    return NOTHING
