"""The clock interface. Pure packages get the time as an argument."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """A source of time; tests and the simulator pass their own."""

    def now(self) -> float:
        """Return seconds on a monotonic clock; only differences have a meaning."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch, for people; may jump, so no decision uses it."""
        ...
