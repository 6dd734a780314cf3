"""Lines written by a thread, so that no fault of their file or pipe reaches the program.

Rule: `put` never waits and never raises. Lines that cannot be written, or for which the queue has
no room, are lost and counted; the thread tries again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

MAX_WAITING: Final = 20_000
# Entries of the queue that are written together.
BATCH: Final = 500
RETRY_S: Final = 1.0
# The least time between two writes: to be woken for each line costs more than the line.
PAUSE_S: Final = 0.01


class LineWriter:
    """A bounded queue of lines, and the thread that writes them in order.

    Attributes:
        lost: lines that were not written.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[bytes], object],
        on_failed: Callable[[int, Exception], None] = lambda _lines, _error: None,
        on_recovered: Callable[[int], None] = lambda _lines: None,
    ) -> None:
        """Start the thread, which calls all three functions.

        Args:
            name: of the thread.
            write: writes whole lines, or raises.
            on_failed: is called with the number of lines that one write has lost, and its error.
            on_recovered: is called after losses, once all that waited is written; with the number
                of lost lines.
        """
        self.lost = 0
        self._write, self._on_failed, self._on_recovered = write, on_failed, on_recovered
        self._queue: deque[bytes] = deque()
        # Reentrant: a finalizer may log while its thread is in `put`.
        self._change = threading.Condition(threading.RLock())
        self._is_closing = False
        # Whether a failed write may have written a part of a line.
        self._is_torn = False
        self._reported = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, data: bytes) -> None:
        """Queue lines; count them as lost if the queue is full."""
        with self._change:
            if len(self._queue) >= MAX_WAITING or self._is_closing:
                self.lost += _lines(data)
                return
            self._queue.append(data)
            self._change.notify()

    def close(self, timeout_s: float) -> bool:
        """Write the queue, for at most `timeout_s`; return whether the thread has ended."""
        with self._change:
            self._is_closing = True
            self._change.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while data := self._take():
            try:
                self._write(b"\n" + data if self._is_torn else data)
            except Exception as error:
                self._on_error(_lines(data), error)
            else:
                self._is_torn = False
                self._report_recovery()
                time.sleep(PAUSE_S)

    def _take(self) -> bytes:
        with self._change:
            self._change.wait_for(lambda: self._queue or self._is_closing)
            return b"".join(self._queue.popleft() for _ in range(min(BATCH, len(self._queue))))

    def _on_error(self, lines: int, error: Exception) -> None:
        self._is_torn = True
        with self._change:
            self.lost += lines
        self._on_failed(lines, error)
        with self._change:
            self._change.wait_for(lambda: self._is_closing, RETRY_S)

    def _report_recovery(self) -> None:
        with self._change:
            lost = self.lost - self._reported
            if not lost or self._queue:
                return
            self._reported = self.lost
        self._on_recovered(lost)


def _lines(data: bytes) -> int:
    return max(data.count(b"\n"), 1)
