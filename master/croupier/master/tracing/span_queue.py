"""Spans on their way to a collector: a bounded queue, and a thread that sends them in batches.

The event loop never waits: a span that does not fit is dropped and counted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from croupier.master.tracing.span import Span
from croupier.model.log_throttle import LogThrottle
from croupier.process.logging import get_logger

# About 10 MB.
MAX_SPANS = 10_000
BATCH = 512
# A batch is sent when it is full, or after this time.
FLUSH_S = 1.0
END_S = 2.0
WARN_AGAIN_S = 60.0

_log = get_logger("croupier.traces")


class SpanQueue:
    """Sends spans from a thread of its own.

    Attributes:
        exported: spans that the collector took.
        failed: spans that it did not take.
        dropped: spans that did not fit into the queue.
    """

    def __init__(self, export: Callable[[Sequence[Span]], bool]) -> None:
        """`export` sends a batch and returns whether that succeeded; it may take its time."""
        self._export = export
        self._spans: deque[Span] = deque()
        self._wake, self._ending = threading.Event(), threading.Event()
        self._throttle = LogThrottle(WARN_AGAIN_S)
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self.exported = self.failed = self.dropped = 0

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def put(self, span: Span) -> None:
        """Queue a span, or drop it."""
        if len(self._spans) >= MAX_SPANS:
            self.dropped += 1
            return
        self._spans.append(span)
        if len(self._spans) >= BATCH:
            self._wake.set()

    def stop(self) -> None:
        """Send what is queued for at most `END_S`; the rest is lost."""
        self._ending.set()
        self._wake.set()
        self._thread.join(END_S)

    def _run(self) -> None:
        while not self._ending.is_set():
            self._wake.wait(FLUSH_S)
            self._wake.clear()
            self._flush()
        self._flush()

    def _flush(self) -> None:
        while self._spans:
            batch = [self._spans.popleft() for _ in range(min(BATCH, len(self._spans)))]
            try:
                is_sent = self._export(batch)
            except Exception as error:
                is_sent = False
                self._warn(str(error))
            else:
                if not is_sent:
                    self._warn("the collector did not take them")
            if is_sent:
                self.exported += len(batch)
            else:
                self.failed += len(batch)

    def _warn(self, reason: str) -> None:
        if self._throttle.is_due("export", time.monotonic()):
            _log.warning("traces_not_exported", reason=reason)
