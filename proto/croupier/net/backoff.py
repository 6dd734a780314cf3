"""Random waits between attempts."""

from __future__ import annotations

import random


class Backoff:
    """Full jitter: each wait is drawn between nearly 0 and a bound that doubles up to a cap.

    A thousand peers that lost the same master reconnect spread over the bound, not all at once.
    """

    def __init__(self, first_s: float, cap_s: float, rng: random.Random) -> None:
        """Start with waits of up to `first_s`; never wait longer than `cap_s`."""
        self._first_s, self._cap_s, self._rng = min(first_s, cap_s), cap_s, rng
        self._bound_s = self._first_s

    def next_s(self) -> float:
        """Return the seconds to wait before the next attempt."""
        wait = self._rng.uniform(0.1 * self._first_s, self._bound_s)
        self._bound_s = min(self._bound_s * 2, self._cap_s)
        return wait

    def limit(self, cap_s: float) -> None:
        """Wait at most `cap_s` from now on."""
        self._cap_s = cap_s
        self._bound_s = min(self._bound_s, cap_s)

    def reset(self) -> None:
        """Return to short waits, after a success."""
        self._bound_s = self._first_s
