"""The audit log's own file.

Rule: no fault of the disk delays a call, or ends the master or the log: see `LineWriter`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from croupier.master.access.audit import AuditLine
from croupier.master.eventlog import files
from croupier.model.errors import Unavailable
from croupier.process.durable_files import write_all
from croupier.process.logging import get_logger
from croupier.process.queue_writer import LineWriter

FILE_BYTES: Final = 64 * 1024 * 1024
# Files kept, the newest included.
FILES: Final = 16
CLOSE_S: Final = 5.0

Write = Callable[[int, bytes], None]

_log = get_logger("croupier.master")


class AuditFile:
    """A sink that appends to a file and begins another when it is large.

    Attributes:
        written: bytes that were written.
    """

    def __init__(self, path: Path, file_bytes: int = FILE_BYTES, write: Write = write_all) -> None:
        """Open the file; only its owner may read it.

        Raises:
            Unavailable: if that fails, or `path` is not a regular file.
        """
        self.written = 0
        self._path, self._file_bytes, self._write_all = path, file_bytes, write
        try:
            self._file = _open(path)
        except OSError as error:
            raise Unavailable(f"--audit-log {path}: {error.strerror or error}") from None
        self._lines = LineWriter("audit-log", self._write, self._on_failed, self._on_recovered)

    @property
    def lost(self) -> int:
        """The number of lines that could not be written."""
        return self._lines.lost

    def put(self, line: AuditLine) -> None:
        """Queue a line; count it as lost if the queue is full."""
        # Encoded here: while the thread computes, the event loop would wait for the interpreter.
        self._lines.put(line.encoded())

    def close(self) -> None:
        """Write the queue and close the file; block for at most 5 s."""
        if self._lines.close(CLOSE_S) and self._file >= 0:
            os.close(self._file)

    def _write(self, data: bytes) -> None:
        """Write the lines.

        Raises:
            OSError: if the disk is full or fails.
        """
        if self._file < 0:
            self._file = _open(self._path)
        self._write_all(self._file, data)
        self.written += len(data)
        if os.fstat(self._file).st_size >= self._file_bytes:
            self._begin_file()

    def _begin_file(self) -> None:
        """Rename the file, and delete the oldest ones beyond the limit."""
        file, self._file = self._file, -1
        os.close(file)
        self._path.rename(files.next_older(self._path))
        for each in files.older(self._path)[: -(FILES - 1)]:
            each.unlink()

    def _on_failed(self, error: Exception) -> None:
        reason = str(getattr(error, "strerror", None) or repr(error))
        _log.error("audit_log_failed", path=str(self._path), reason=reason)

    def _on_recovered(self, lost: int) -> None:
        _log.warning("audit_log_recovered", path=str(self._path), lines_lost=lost)


def _open(path: Path) -> int:
    """Open a regular file for appending.

    Raises:
        OSError: if it is none, or cannot be opened.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError("it is not a regular file")
    return file
