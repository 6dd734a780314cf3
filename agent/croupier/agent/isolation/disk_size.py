"""Measures how much disk a directory takes, in steps of bounded work.

Rule: no link is followed and no other file system is entered. The walk holds one descriptor,
however deep a task nests its directories, and goes up only to the directory that it came from.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field

from croupier.agent.directories import open_directory

BLOCK = 512
# Above these numbers, the result is below the real size.
MOST_DIRECTORIES = 100_000
MOST_LINKED = 100_000


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
        """Begin at the open directory `root`, which the walk closes.

        Raises:
            OSError: if it cannot be read.
        """
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
        """Go on with a directory below, or above, whose files are not added yet."""
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
