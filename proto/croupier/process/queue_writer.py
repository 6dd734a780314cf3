"""A bounded queue whose items a thread writes, so that no fault of a writer reaches the program.

Rule: `put` never waits and never raises. Items that cannot be written, or for which the queue has
no room, are lost and counted; the thread goes on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

MAX_WAITING: Final = 20_000
# Items that are written together.
BATCH: Final = 500
# The wait after a failed write.
RETRY_S: Final = 1.0
# The wait after a write for further items: to be woken for each costs more than a line.
PAUSE_S: Final = 0.05

ItemT = TypeVar("ItemT")


class QueueWriter(Generic[ItemT]):
    """A queue and its thread.

    Attributes:
        written: items that were written.
        failed: items that were lost because a write failed.
        dropped: items that were lost because the queue was full, or closed.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[list[ItemT]], object],
        on_failed: Callable[[Exception], None] = lambda _: None,
        on_recovered: Callable[[int], None] = lambda _: None,
        most: int = MAX_WAITING,
        pause_s: float = PAUSE_S,
    ) -> None:
        """Start the thread `name`, which calls all three functions.

        Args:
            name: of the thread.
            write: writes items, or raises.
            on_failed: is called with the error of the first failed write, and after each recovery.
            on_recovered: is called after losses with their number, once nothing waits.
            most: items that wait.
            pause_s: the wait after a write for further items, less if there is a full batch.
        """
        self.written = self.failed = self.dropped = 0
        self._write, self._on_failed, self._on_recovered = write, on_failed, on_recovered
        self._most, self._pause_s = most, pause_s
        self._queue: deque[ItemT] = deque()
        # Reentrant: a finalizer may log while its thread is in `put`.
        self._change = threading.Condition(threading.RLock())
        self._is_closing = self._is_failing = False
        self._reported = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """The number of items that were not written."""
        return self.failed + self.dropped

    def put(self, item: ItemT) -> None:
        """Queue an item, or count it as dropped."""
        with self._change:
            if len(self._queue) >= self._most or self._is_closing:
                self.dropped += 1
                return
            self._queue.append(item)
            if len(self._queue) in (1, BATCH):
                self._change.notify()

    def close(self, timeout_s: float) -> bool:
        """Write the queue, for at most `timeout_s`; return whether the thread has ended."""
        with self._change:
            self._is_closing = True
            self._change.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while batch := self._take():
            try:
                self._write(batch)
            except Exception as error:
                self.failed += len(batch)
                if not self._is_failing:
                    self._is_failing = True
                    self._on_failed(error)
                self._wait(lambda: self._is_closing, RETRY_S)
            else:
                self.written += len(batch)
                self._report_recovery()
                self._wait(lambda: self._is_closing or len(self._queue) >= BATCH, self._pause_s)

    def _take(self) -> list[ItemT]:
        with self._change:
            self._wait(lambda: bool(self._queue) or self._is_closing, None)
            return [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]

    def _wait(self, until: Callable[[], bool], timeout_s: float | None) -> None:
        with self._change:
            self._change.wait_for(until, timeout_s)

    def _report_recovery(self) -> None:
        lost = self.lost - self._reported
        if lost and not self._queue:
            self._reported += lost
            self._is_failing = False
            self._on_recovered(lost)


class LineWriter(QueueWriter[bytes]):
    """Writes lines. What a failed write left behind becomes a line of its own."""

    def __init__(
        self,
        name: str,
        write: Callable[[bytes], object],
        on_failed: Callable[[Exception], None] = lambda _: None,
        on_recovered: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Start the thread; `write` writes all of some bytes, or raises."""
        self._write_bytes, self._is_torn = write, False
        super().__init__(name, self._write_lines, on_failed, on_recovered)

    def _write_lines(self, lines: list[bytes]) -> None:
        data = b"".join([b"\n", *lines] if self._is_torn else lines)
        self._is_torn = True
        self._write_bytes(data)
        self._is_torn = False
