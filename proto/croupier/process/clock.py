"""The machine's clock."""

from __future__ import annotations

import time


class SystemClock:
    """The `croupier.model.clock.Clock` of the operating system."""

    def now(self) -> float:
        """Return seconds on the monotonic clock."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000
