"""The audit log's own file, written in a thread of its own.

Rule: `put` never waits, and no fault of the disk ends the master or the log. Lines that cannot be
written, or for which the queue has no room, are counted and lost; the writer tries again.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from croupier.master.audit import AuditLine
from croupier.master.eventlog import files
from croupier.model.errors import Unavailable
from croupier.model.log_throttle import LogThrottle
from croupier.process.durable_files import write_all
from croupier.process.logging import get_logger

MAX_WAITING: Final = 20_000
# Lines that are written together.
BATCH: Final = 500
FILE_BYTES: Final = 64 * 1024 * 1024
# Files kept, the newest included.
FILES: Final = 16
RETRY_S: Final = 1.0
CLOSE_S: Final = 5.0

Write = Callable[[int, bytes], None]

_log = get_logger("croupier.master")


class AuditFile:
    """A sink that appends to a file and begins another when it is large.

    Attributes:
        lost: lines that could not be written.
        written: bytes that were written.
    """

    def __init__(self, path: Path, file_bytes: int = FILE_BYTES, write: Write = write_all) -> None:
        """Open the file; only its owner may read it.

        Raises:
            Unavailable: if that fails, or `path` is not a regular file.
        """
        self.lost = self.written = 0
        self._path, self._file_bytes, self._write_all = path, file_bytes, write
        self._queue: deque[bytes] = deque()
        self._change = threading.Condition()
        self._is_closing = False
        self._throttle = LogThrottle()
        # Whether the file may end in a part of a line.
        self._is_torn = False
        try:
            self._file = _open(path)
        except OSError as error:
            raise Unavailable(f"--audit-log {path}: {error.strerror or error}") from None
        self._thread = threading.Thread(target=self._run, name="audit-log", daemon=True)
        self._thread.start()

    def put(self, line: AuditLine) -> None:
        """Queue a line; count it as lost if the queue is full."""
        # Not in the thread: while that computes, the event loop would wait for the interpreter.
        data = line.encoded()
        with self._change:
            if len(self._queue) >= MAX_WAITING or self._is_closing:
                self.lost += 1
                return
            self._queue.append(data)
            self._change.notify()

    def close(self) -> None:
        """Write the queue and close the file; block for at most 5 s."""
        with self._change:
            self._is_closing = True
            self._change.notify()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while batch := self._take():
            try:
                self._write(batch)
            except Exception as error:
                self._is_torn = True
                self._report(len(batch), str(getattr(error, "strerror", None) or repr(error)))
                with self._change:
                    if not self._is_closing:
                        self._change.wait_for(lambda: self._is_closing, RETRY_S)
        if self._file >= 0:
            os.close(self._file)

    def _take(self) -> list[bytes]:
        with self._change:
            self._change.wait_for(lambda: self._queue or self._is_closing)
            return [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]

    def _write(self, batch: Iterable[bytes]) -> None:
        """Write the lines.

        Raises:
            OSError: if the disk is full or fails.
        """
        if self._file < 0:
            self._file = _open(self._path)
        data = b"".join(batch)
        if self._is_torn:
            data = b"\n" + data
        self._write_all(self._file, data)
        self._is_torn = False
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

    def _report(self, lines: int, reason: str) -> None:
        self.lost += lines
        if self._throttle.is_due("failed", time.monotonic()):
            _log.error("audit_log_failed", path=str(self._path), lines_lost=lines, reason=reason)


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
