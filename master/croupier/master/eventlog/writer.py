"""Writer of the log's files, in a thread of its own.

Rule: `put` never waits. The queue is bounded. If the queue is full or a write fails, the log is
given up for good, since a log with a gap cannot be replayed.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from croupier.master.eventlog import files
from croupier.model.errors import Unavailable
from croupier.process.durable_files import os_errors_as, write_all
from croupier.process.logging import get_logger
from croupier.process.queue_writer import QueueWriter

MAX_WAITING = 32 * 1024 * 1024
CLOSE_S = 5.0

Open = Callable[[Path], int]

_log = get_logger("croupier.master")


def open_new(path: Path) -> int:
    """Create a file that only its owner may read, and return its descriptor; raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


class Writer:
    """A writer of at most `most` files, newest at `path`; `failure`: why the log was given up."""

    def __init__(
        self, path: Path, most: int, max_waiting: int = MAX_WAITING, open_file: Open = open_new
    ) -> None:
        """Rename an existing log, and open a new file; raises Unavailable if that fails."""
        self.failure: str | None = None
        self.written = 0
        self._path, self._most, self._max_waiting = path, most, max_waiting
        self._open_file, self._file = open_file, -1
        # Bytes of lines that were queued, and that have left the queue.
        self._queued = self._taken = 0
        self._lock = threading.Lock()
        with os_errors_as(Unavailable, f"--event-log {path}"):
            _check(path)
            self._file = self._next_file()
        # Of lines, and of the first lines of a new file. Their bytes are bounded, not their number.
        self._queue: QueueWriter[bytes | Iterator[bytes]] = QueueWriter(
            "event-log", self._write, self._on_failed, most=2 * max_waiting, pause_s=0.0
        )

    def put(self, data: bytes) -> None:
        """Queue whole lines."""
        if self.failure is not None:
            return
        self._queued += len(data)
        if self._queued - self._taken > self._max_waiting:
            self.give_up("the disk does not keep up: too much waits to be written")
        else:
            self._queue.put(data)

    def begin_file(self, lines: Iterable[bytes]) -> None:
        """Queue the start of a new file, whose first lines are `lines`."""
        if self.failure is None:
            self._queue.put(iter(lines))

    def give_up(self, why: str) -> None:
        """Stop writing permanently."""
        with self._lock:
            if self.failure is None:
                self.failure = why
                _log.warning("event_log_given_up", path=str(self._path), reason=why)

    def close(self) -> None:
        """Write the queue and close the file; block for at most 5 s."""
        if self._queue.close(CLOSE_S):
            self._abandon_file()
        else:
            self.give_up(f"the disk accepted no data for {CLOSE_S:.0f} s while the master stopped")

    def _on_failed(self, error: Exception) -> None:
        why = error.strerror or str(error) if isinstance(error, OSError) else repr(error)
        self.give_up(why)
        self._abandon_file()

    def _write(self, batch: list[bytes | Iterator[bytes]]) -> None:
        for each in batch:
            if self.failure is not None:
                self._abandon_file()
                return
            if isinstance(each, bytes):
                self._append(each)
                self._taken += len(each)
                continue
            self._close_file()
            self._file = self._next_file()
            for line in each:
                self._append(line)

    def _append(self, data: bytes) -> None:
        write_all(self._file, data)
        self.written += len(data)

    def _next_file(self) -> int:
        files.make_room(self._path, self._most)
        return self._open_file(self._path)

    def _abandon_file(self) -> None:
        with suppress(OSError):
            self._close_file()

    def _close_file(self) -> None:
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)


def _check(path: Path) -> None:
    """Refuse to rename a device or a link. Raises OSError if `path` is one."""
    if path.is_symlink() or (path.exists() and not stat.S_ISREG(path.stat().st_mode)):
        raise OSError("it is not a regular file")
