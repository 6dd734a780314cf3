"""Time, as a thing that is passed in."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Where a shell takes the time from; tests and the simulator pass their own."""

    def now(self) -> float:
        """Seconds on a monotonic clock; only differences have a meaning."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, for people; may jump, so nothing is decided on it."""
        ...
