"""Measures how much disk a task takes: its sandbox, and files that the sandbox does not show.

The size of a directory is measured in steps of bounded work. No link is followed and no other file
system is entered. The walk holds one descriptor, however deep a task nests its directories, and
goes up only to the directory that it came from.

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
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from croupier.agent.directories import directory, open_directory
from croupier.agent.secret_files import is_in_memory
from croupier.agent.shim.run_file import stat_of
from croupier.agent.unix_user import UidRange

BLOCK = 512
# Above these numbers, the result is below the real size.
MOST_DIRECTORIES = 100_000
MOST_LINKED = 100_000
SHARED: Final = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - of tasks
# The most time for the shared directories, and for the open files of one task.
LOOK_S: Final = 0.25
_STEP_FILES: Final = 1_000


@dataclass(slots=True)
class _Level:
    """A directory on the way to the present one, and its directories that are still to enter."""

    device: int
    inode: int
    pending: list[str] = field(default_factory=list)


class DiskWalk:
    """Adds up the allocated blocks of all files below a directory.

    Attributes:
        size: bytes so far; hard links to one file count once.
        files: files and directories so far.
        is_done: whether all that can be read was added.
    """

    def __init__(self, root: int) -> None:
        """Begin at the directory `root`, which the walk closes; raises OSError if unreadable."""
        try:
            found = os.fstat(root)
            self._entries = os.scandir(root)
        except OSError:
            os.close(root)
            raise
        self.size = found.st_blocks * BLOCK
        self.files = 0
        self.is_done = False
        self._device = found.st_dev
        self._fd = root
        self._levels = [_Level(found.st_dev, found.st_ino)]
        self._linked: set[int] = set()
        self._waiting = 0

    @property
    def root(self) -> int:
        """The descriptor of the directory that the walk is in: at first, of the whole."""
        return self._fd

    def step(self, entries: int) -> bool:
        """Add up to `entries` files; return whether the walk is done."""
        while entries > 0 and not self.is_done:
            entries -= 1
            try:
                entry = next(self._entries, None)
            except OSError:
                # The directory was removed meanwhile.
                entry = None
            if entry is None:
                self._leave()
            else:
                self._add(entry)
        return self.is_done

    def close(self) -> None:
        """End the walk."""
        self.is_done = True
        self._entries.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _add(self, entry: os.DirEntry[str]) -> None:
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            # It vanished.
            return
        if found.st_dev != self._device:
            return
        self.files += 1
        if stat.S_ISDIR(found.st_mode):
            self.size += found.st_blocks * BLOCK
            if self._waiting < MOST_DIRECTORIES:
                self._levels[-1].pending.append(entry.name)
                self._waiting += 1
            return
        if found.st_nlink > 1:
            if found.st_ino in self._linked or len(self._linked) >= MOST_LINKED:
                return
            self._linked.add(found.st_ino)
        self.size += found.st_blocks * BLOCK

    def _leave(self) -> None:
        """Continue with a directory, below or above, whose files are not added yet."""
        while self._levels:
            level = self._levels[-1]
            while level.pending:
                self._waiting -= 1
                if self._enter(level.pending.pop()):
                    return
            self._levels.pop()
            if self._levels and not self._go_up():
                break
        self.close()

    def _enter(self, name: str) -> bool:
        with suppress(OSError):
            fd = open_directory(name, self._fd, to_list=True)
            try:
                found = os.fstat(fd)
                if found.st_dev != self._device:
                    raise OSError
                entries = os.scandir(fd)
            except OSError:
                os.close(fd)
                return False
            self._replace(fd)
            self._entries = entries
            self._levels.append(_Level(found.st_dev, found.st_ino))
            return True
        return False

    def _go_up(self) -> bool:
        """Return to the directory above; False if it was moved meanwhile."""
        above = self._levels[-1]
        try:
            fd = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fd)
        except OSError:
            return False
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != (above.device, above.inode):
            os.close(fd)
            return False
        self._replace(fd)
        return True

    def _replace(self, fd: int) -> None:
        self._entries.close()
        os.close(self._fd)
        self._fd = fd


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
        """Return the hidden files of a run by its open sandbox; raises OSError if that is gone."""
        home = os.fstat(sandbox)
        found = removed_files(self._pids.get(run, ()), home.st_dev)
        return found + self._by_uid.get(home.st_uid, NOTHING)

    def _add_shared(self, path: Path, until: float) -> None:
        assert self._uids is not None
        with directory(path, to_list=True) as shared, os.scandir(shared) as entries:
            for entry in entries:
                if monotonic() > until:
                    return
                with suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    if found.st_uid in self._uids:
                        before = self._by_uid.get(found.st_uid, NOTHING)
                        more = _size_of(entry.name, shared, found, until)
                        self._by_uid[found.st_uid] = before + more


def processes_below(shims: Mapping[int, str]) -> dict[str, list[int]]:
    """Return the processes that descend from shims, by the run of the shim. O(processes)."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - only names
        if name.isdigit() and (fields := stat_of(name)):
            parents[int(name)] = int(fields[1])
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
