"""Writer of the log's files, in a thread of its own.

Rule: `put` never waits. The queue is bounded. If the queue is full or a write fails, the log is
given up for good, since a log with a gap cannot be replayed.
"""

from __future__ import annotations

import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from croupier.master.eventlog import files
from croupier.model.errors import Unavailable
from croupier.process.durable_files import write_all
from croupier.process.logging import get_logger

MAX_WAITING = 32 * 1024 * 1024
CLOSE_S = 5.0

Open = Callable[[Path], int]

_log = get_logger("croupier.master")


def open_new(path: Path) -> int:
    """Create a file that only its owner may read, and return its descriptor; raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


class Writer:
    """A writer that keeps at most `most` files; the newest is at `path`.

    Attributes:
        failure: why the log was given up; None if it was not.
        written: the number of bytes written.
    """

    def __init__(
        self, path: Path, most: int, max_waiting: int = MAX_WAITING, open_file: Open = open_new
    ) -> None:
        """Rename an existing log, and open a new file; raises Unavailable if that fails."""
        self.failure: str | None = None
        self.written = 0
        self._path, self._most, self._max_waiting = path, most, max_waiting
        self._open_file = open_file
        # Lines, and the first lines of a new file.
        self._queue: deque[bytes | Iterator[bytes]] = deque()
        self._waiting = 0
        self._is_closing = False
        self._file = -1
        self._change = threading.Condition()
        try:
            _check(path)
            self._file = self._next_file()
        except OSError as error:
            raise Unavailable(f"--event-log {path}: {error.strerror or error}") from None
        self._thread = threading.Thread(target=self._run, name="event-log", daemon=True)
        self._thread.start()

    def put(self, data: bytes) -> None:
        """Queue whole lines."""
        with self._change:
            if self.failure is not None:
                return
            if self._waiting + len(data) > self._max_waiting:
                self._fail("the disk does not keep up: too much waits to be written")
                return
            self._queue.append(data)
            self._waiting += len(data)
            self._change.notify()

    def begin_file(self, lines: Iterable[bytes]) -> None:
        """Queue the start of a new file, whose first lines are `lines`."""
        with self._change:
            if self.failure is None:
                self._queue.append(iter(lines))
                self._change.notify()

    def give_up(self, why: str) -> None:
        """Stop writing permanently."""
        with self._change:
            self._fail(why)

    def close(self) -> None:
        """Write the queue and close the file; block for at most 5 s."""
        with self._change:
            self._is_closing = True
            self._change.notify()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self.give_up(f"the disk accepted no data for {CLOSE_S:.0f} s while the master stopped")

    def _run(self) -> None:
        try:
            while (batch := self._take()) is not None:
                for each in batch:
                    self._write(each)
        except OSError as error:
            self.give_up(error.strerror or str(error))
        except Exception as error:
            self.give_up(repr(error))
        finally:
            self._close_file()

    def _take(self) -> list[bytes | Iterator[bytes]] | None:
        with self._change:
            while not self._queue and not self._is_closing and self.failure is None:
                self._change.wait()
            if self.failure is not None or not self._queue:
                return None
            batch = list(self._queue)
            self._queue.clear()
            return batch

    def _write(self, each: bytes | Iterator[bytes]) -> None:
        if isinstance(each, bytes):
            self._append(each)
            with self._change:
                self._waiting -= len(each)
            return
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

    def _close_file(self) -> None:
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)

    def _fail(self, why: str) -> None:
        """Stop the log permanently; the caller holds the lock."""
        if self.failure is None:
            self.failure = why
            self._queue.clear()
            _log.warning("event_log_given_up", path=str(self._path), reason=why)
        self._change.notify()


def _check(path: Path) -> None:
    """Refuse to rename a device or a link. Raises OSError if `path` is one."""
    if path.is_symlink() or (path.exists() and not stat.S_ISREG(path.stat().st_mode)):
        raise OSError("it is not a regular file")
