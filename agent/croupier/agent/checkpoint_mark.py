"""The mark beside a checkpoint, `checkpoint.mark`: its last durable line.

A log that was truncated at the end of a line looks complete. The mark detects it, and also a log
that was replaced by an older copy.

Rule: the mark is never ahead of the log. It is written after the lines are durable, and is not
synced, so after a power failure it may name an earlier line. It is cleared and synced before the
log is replaced by one with other lines.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from croupier.agent.directories import open_beneath
from croupier.agent.record_lines import checked, line

NAME = "checkpoint.mark"
# Stands for the checksum when lines are known to be missing.
LOST = b"########"
_SIZE = 64
_CRC_DIGITS = 8
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class LastLine:
    """A line of the log: its number and its checksum."""

    number: int
    crc: bytes

    @classmethod
    def of(cls, number: int, text: bytes) -> LastLine:
        """Return the line of that number and text."""
        return cls(number, text[:_CRC_DIGITS])


class LogMark:
    """The mark, open for reading and writing."""

    def __init__(self, fd: int | None) -> None:
        """Use `open` instead."""
        self._fd = fd

    @classmethod
    def open(cls, directory: Path) -> LogMark:
        """Open the mark in `directory`; if the disk is full, return a mark that stores nothing.

        Raises:
            OSError: if it fails for another reason.
        """
        try:
            return cls(open_beneath(directory / NAME, os.O_RDWR | os.O_CREAT))
        except OSError as error:
            if error.errno not in _FULL:
                raise
            return cls(None)

    def read(self) -> LastLine | None:
        """Return the last line known to be durable; None if there is none."""
        if self._fd is None:
            return None
        found = checked(os.pread(self._fd, _SIZE, 0).rstrip(b" \n"))
        return LastLine(*found) if found and len(found[1]) == _CRC_DIGITS else None

    def write(self, last: LastLine) -> None:
        """Name the last line. If writing fails, the mark still names an earlier line."""
        if self._fd is not None:
            with suppress(OSError):
                os.pwrite(self._fd, line(last.number, last.crc).ljust(_SIZE), 0)

    def clear(self) -> None:
        """Name no line, durably.

        Raises:
            OSError: if the mark cannot be written.
        """
        if self._fd is not None:
            os.pwrite(self._fd, b" " * _SIZE, 0)
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
