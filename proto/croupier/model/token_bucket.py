"""A token bucket: a rate that may be exceeded for a short time."""

from __future__ import annotations


class Bucket:
    """A token bucket that may go into debt."""

    __slots__ = ("_at", "_burst", "_left", "_per_s")

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        """Start full; `now`: seconds on a monotonic clock."""
        self._per_s, self._burst = per_s, burst
        self._left, self._at = burst, now

    def take(self, amount: float, now: float) -> None:
        """Take `amount` from the bucket; it may go into debt."""
        self._refill(now)
        self._left -= amount

    def try_take(self, amount: float, now: float) -> bool:
        """Take `amount` unless the bucket is in debt; return whether it was taken."""
        self._refill(now)
        if self._left < 0:
            return False
        self._left -= amount
        return True

    def debt_s(self, now: float) -> float:
        """Return the seconds until the bucket is out of debt; 0 if it is not in debt."""
        self._refill(now)
        return 0.0 if self._left >= 0 else -self._left / self._per_s

    def _refill(self, now: float) -> None:
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
