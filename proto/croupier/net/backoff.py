"""How long to wait before the next try."""

from __future__ import annotations

import random


class Backoff:
    """Full jitter: each wait is drawn between 0 and a bound that doubles up to a cap.

    A thousand peers that lost the same master come back spread over the bound rather
    than all at once.
    """

    def __init__(self, first_s: float, cap_s: float, rng: random.Random) -> None:
        """Start with waits of up to `first_s`; never wait longer than `cap_s`."""
        self._first_s, self._cap_s, self._rng = min(first_s, cap_s), cap_s, rng
        self._bound_s = self._first_s

    def next_s(self) -> float:
        """Seconds to wait before the coming try."""
        wait = self._rng.uniform(0.1 * self._first_s, self._bound_s)
        self._bound_s = min(self._bound_s * 2, self._cap_s)
        return wait

    def reset(self) -> None:
        """The last try worked: begin again with short waits."""
        self._bound_s = self._first_s
