"""Disk space reserved for terminal updates and acknowledgements: `checkpoint.reserve`.

Rule: an agent whose disk is short of space starts no new task before the reserve is needed. The
reserve is released when a record does not fit, and taken again once there is space for it.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

NAME = "checkpoint.reserve"
RESERVE_BYTES = 1024 * 1024
# With less free space than this, or than this part of a small disk, no new task is started.
LEAST_FREE_BYTES = 4 * 1024 * 1024
LEAST_FREE_PART = 16
LEAST_FREE_FILES = 64

FULL = (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """The reserve of a checkpoint.

    Attributes:
        has_room: whether the disk has space for new tasks.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.has_room = True

    def take(self, fd: int) -> None:
        """Take the reserve, if there is space, on the disk of the open file `fd`.

        Raises:
            OSError: if it fails for another reason than a full disk.
        """
        self._allocate()
        self.has_room = self.has_room and not is_short(fd)

    def release(self) -> None:
        """Release the reserve, so that its space can be used.

        Raises:
            OSError: if the file cannot be removed.
        """
        self.has_room = False
        self._path.unlink(missing_ok=True)

    def update(self, fd: int) -> None:
        """Update `has_room` for the disk of `fd`; take the reserve again if there is space."""
        was_short = not self.has_room
        if was_short:
            # The agent runs on without a reserve.
            with suppress(OSError):
                self._allocate()
        if is_short(fd, was_short=was_short):
            self.has_room = False

    def _allocate(self) -> None:
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, RESERVE_BYTES)
            finally:
                os.close(fd)
            self.has_room = True
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._path.unlink(missing_ok=True)
            self.has_room = False


def is_short(fd: int, *, was_short: bool = False) -> bool:
    """Return whether the disk of an open file has too little space for new tasks.

    A disk that `was_short` must have twice as much free space.
    """
    disk = os.fstatvfs(fd)
    blocks = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    least = min(LEAST_FREE_BYTES, disk.f_blocks * disk.f_frsize // LEAST_FREE_PART)
    times = 2 if was_short else 1
    # Some file systems do not count files.
    is_out_of_files = bool(disk.f_files) and disk.f_favail < LEAST_FREE_FILES * times
    return is_out_of_files or blocks * disk.f_frsize < least * times
