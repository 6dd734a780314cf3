"""The files beside the log of a checkpoint: its reserve of disk space, and its mark.

`checkpoint.reserve` is released when a record does not fit, and taken again once there is space for
it: terminal updates and acknowledgements can still be written. An agent whose disk is short of
space starts no new task before the reserve is needed.

`checkpoint.mark` names the last durable line. A log that was truncated at the end of a line looks
complete. The mark detects it, and also a log that was replaced by an older copy.

Rule: the mark is never ahead of the log. It is written after the lines are durable, and is not
synced, so after a power failure it may name an earlier line. It is cleared and synced before the
log is replaced by one with other lines.

Functions raise OSError if the system refuses what they need.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from croupier.agent.directories import closing, open_beneath
from croupier.agent.record_lines import checked, line

RESERVE_NAME = "checkpoint.reserve"
RESERVE_BYTES = 1024 * 1024
# With less free space than this, or than this part of a small disk, no new task is started.
LEAST_FREE_BYTES = 4 * 1024 * 1024
LEAST_FREE_PART = 16
LEAST_FREE_FILES = 64

FULL = (errno.ENOSPC, errno.EDQUOT)
MARK_NAME = "checkpoint.mark"
# Stands for the checksum when lines are known to be missing.
LOST = b"########"
_SIZE = 64
_CRC_DIGITS = 8


class Reserve:
    """The reserve of a checkpoint, and whether the disk `has_room` for new tasks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.has_room = True

    def take(self, fd: int) -> None:
        """Take the reserve, if there is space, on the disk of the open file `fd`.

        Raises OSError if it fails for another reason than a full disk.
        """
        self._allocate()
        self.has_room = self.has_room and not is_short(fd)

    def release(self) -> None:
        """Release the reserve, so that its space can be used."""
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
            with closing(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)) as fd:
                os.posix_fallocate(fd, 0, RESERVE_BYTES)
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


class LogMark:
    """The mark, open for reading and writing."""

    def __init__(self, directory: Path) -> None:
        """Open the mark in `directory`; if the disk is full, one that stores nothing.

        Raises OSError if it fails for another reason.
        """
        self._fd: int | None = None
        try:
            self._fd = open_beneath(directory / MARK_NAME, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if error.errno not in FULL:
                raise

    def read(self) -> tuple[int, bytes] | None:
        """Return number and checksum of the last line known to be durable; None: there is none."""
        if self._fd is None:
            return None
        found = checked(os.pread(self._fd, _SIZE, 0).rstrip(b" \n"))
        return found if found and len(found[1]) == _CRC_DIGITS else None

    def write(self, number: int, text: bytes) -> None:
        """Name the last line, of this text. If writing fails, the mark names an earlier line."""
        if self._fd is not None:
            with suppress(OSError):
                os.pwrite(self._fd, line(number, text[:_CRC_DIGITS]).ljust(_SIZE), 0)

    def clear(self) -> None:
        """Clear the mark durably, so that it names no line."""
        if self._fd is not None:
            os.pwrite(self._fd, b" " * _SIZE, 0)
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
