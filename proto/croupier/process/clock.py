"""The machine's clock, for shells."""

from __future__ import annotations

import time


class SystemClock:
    """`croupier.model.clock.Clock`, told by the operating system."""

    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000
