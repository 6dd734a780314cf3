"""How far the log was written, kept beside it: `checkpoint.mark`.

A log that has lost its last lines looks whole. The mark names the last line that was made
durable, so it tells such a log from one that was never longer.

Rule: the mark is behind the log, never ahead of it. It is written after the lines are durable,
and not synced itself: it serves against a log that is cut or put back, and after a loss of power
it may name an earlier line. Before the log is replaced by one with other lines it is cleared,
and that is synced.
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
# In place of a checksum: the line is missing, whatever it was.
LOST = b"########"
_SIZE = 64
_CRC_DIGITS = 8
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class LastLine:
    """A line of the log: its number, and the checksum that it begins with."""

    number: int
    crc: bytes

    @classmethod
    def of(cls, number: int, text: bytes) -> LastLine:
        """The line of that number and text."""
        return cls(number, text[:_CRC_DIGITS])


class LogMark:
    """The mark, open for reading and writing."""

    def __init__(self, fd: int | None) -> None:
        """Use `open` instead."""
        self._fd = fd

    @classmethod
    def open(cls, directory: Path) -> LogMark:
        """Open the mark of the log in `directory`; without effect if the disk is full.

        Raises:
            OSError: if it cannot be used for another reason.
        """
        try:
            return cls(open_beneath(directory / NAME, os.O_RDWR | os.O_CREAT))
        except OSError as error:
            if error.errno not in _FULL:
                raise
            return cls(None)

    def read(self) -> LastLine | None:
        """The last line that is known to have been durable; None if none is known."""
        if self._fd is None:
            return None
        told = checked(os.pread(self._fd, _SIZE, 0).rstrip(b" \n"))
        return LastLine(*told) if told and len(told[1]) == _CRC_DIGITS else None

    def write(self, last: LastLine) -> None:
        """Name the last line; a mark that cannot be written names an earlier one."""
        if self._fd is not None:
            with suppress(OSError):
                os.pwrite(self._fd, line(last.number, last.crc).ljust(_SIZE), 0)

    def clear(self) -> None:
        """Name no line any more, durably.

        Raises:
            OSError: if that cannot be written.
        """
        if self._fd is not None:
            os.pwrite(self._fd, b" " * _SIZE, 0)
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
