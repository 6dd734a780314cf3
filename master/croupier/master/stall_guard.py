"""Whether silence may be held against anybody.

A master that stood still, on a slow disk, busy or stopped, has not heard what was said to it
meanwhile. So it listens for a moment, and takes in all that has come by then, before it lets
time pass. It cannot be put off for ever: after a few times in a row time passes all the same.
"""

from __future__ import annotations

from typing import Final

STILL_S: Final = 1.0
LISTEN_S: Final = 1.0
MOST_TIMES: Final = 5


class Listening:
    """What is still to be heard. All times are seconds on one monotonic clock.

    Attributes:
        until: for how long everything said meanwhile is waited for; None: nothing is.
    """

    def __init__(self) -> None:
        """Everything was heard so far."""
        self.until: float | None = None
        self._left: int | None = None
        self._times = 0

    def was_away(self, seconds: float, now: float) -> None:
        """Nothing was heard for so long, up to now."""
        if seconds > STILL_S and self._times < MOST_TIMES:
            self._times += 1
            self.until, self._left = now + LISTEN_S, None

    def took(self, number: int) -> None:
        """So many of those who waited, the first first, were heard."""
        if self._left is not None:
            self._left = max(0, self._left - number)

    def is_over(self, now: float, waiting: int) -> bool:
        """Whether time may pass, with so many waiting to be heard now."""
        if self.until is None:
            return True
        if now < self.until:
            return False
        if self._left is None:
            self._left = waiting
        if self._left:
            return False
        self.until, self._left, self._times = None, None, 0
        return True
