"""Suspends expiry after a stall of the master.

A master that stalled (slow disk, overload, SIGSTOP) has not read what peers sent meanwhile. It
reads for a grace period, and decides all events that arrived by then, before deadlines may
expire. After `MAX_STALLS` stalls in a row deadlines expire all the same.
"""

from __future__ import annotations

from typing import Final

MIN_STALL_S: Final = 1.0
GRACE_S: Final = 1.0
MAX_STALLS: Final = 5


class StallGuard:
    """Decides whether deadlines may expire. All times are seconds on one monotonic clock.

    Attributes:
        grace_until: end of the grace period; None if the master has not stalled.
    """

    def __init__(self) -> None:
        self.grace_until: float | None = None
        self._backlog: int | None = None
        self._stalls = 0

    def add_gap(self, seconds: float, now: float) -> None:
        """Note that the master read nothing for `seconds` up to `now`; a long gap is a stall."""
        if seconds > MIN_STALL_S and self._stalls < MAX_STALLS:
            self._stalls += 1
            self.grace_until, self._backlog = now + GRACE_S, None

    def take(self, number: int) -> None:
        """Note that the oldest `number` events of the inbox are being decided."""
        if self._backlog is not None:
            self._backlog = max(0, self._backlog - number)

    def may_expire(self, now: float, waiting: int) -> bool:
        """Return whether deadlines may expire, with `waiting` events in the inbox."""
        if self.grace_until is None:
            return True
        if now < self.grace_until:
            return False
        if self._backlog is None:
            self._backlog = waiting
        if self._backlog:
            return False
        self.grace_until, self._backlog, self._stalls = None, None, 0
        return True
