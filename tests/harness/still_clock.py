"""A clock that only its test moves."""

from __future__ import annotations


class StillClock:
    """A clock that stands still.

    Attributes:
        at: seconds of its monotonic time.
        wall: milliseconds since the epoch, which are independent of that.
    """

    def __init__(self, at: float = 0.0, wall: int = 10_000_000) -> None:
        self.at, self.wall = at, wall

    def now(self) -> float:
        """Return the monotonic time."""
        return self.at

    def wall_ms(self) -> int:
        """Return the wall-clock time."""
        return self.wall
