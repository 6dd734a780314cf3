"""The lag of the event loop, measured by a repeating timer.

While the timer is late, something blocks the loop: a decision, the conversion of a message, a slow
disk, or another process that has the CPU.
"""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, Histogram

from croupier.model.log_throttle import LogThrottle
from croupier.process.logging import get_logger

INTERVAL_S = 0.05
# A longer lag is logged, at most once in 30 s.
WARN_S = 0.5
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_log = get_logger("croupier.loop")


class LoopWatch:
    """Measures the running loop from `start` to `stop`, into `croupier_loop_lag_seconds`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = Histogram(
            "croupier_loop_lag_seconds",
            "Delay of a timer on the event loop: the time for which something blocked the loop.",
            registry=registry,
            buckets=_SECONDS,
        )
        self._throttle = LogThrottle()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start to measure the running loop."""
        self._set(asyncio.get_running_loop())

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + INTERVAL_S
        self._timer = loop.call_at(due, self._on_due, loop, due)

    def _on_due(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        late_s = max(loop.time() - due, 0.0)
        self._lag.observe(late_s)
        if late_s >= WARN_S and self._throttle.is_due("held", loop.time()):
            _log.warning("loop_held", seconds=round(late_s, 3))
        self._set(loop)
