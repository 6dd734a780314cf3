"""The virtual clock: scheduled actions, in order of time.

Rule: time moves only from one action to the next. Actions of one time run in the order in which
they were scheduled, so nothing depends on hashing or on the machine's clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]


class VirtualClock:
    """A `croupier.model.clock.Clock` that moves as its owner runs scheduled actions."""

    def __init__(self, epoch_ms: int = 0) -> None:
        """Begin at 0, which is `epoch_ms` milliseconds since 1970."""
        self._now = 0.0
        self._epoch_ms = epoch_ms
        self._actions: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def now(self) -> float:
        """Return the virtual seconds since the beginning."""
        return self._now

    def wall_ms(self) -> int:
        """Return the virtual milliseconds since 1970."""
        return self._epoch_ms + int(self._now * 1000)

    def at(self, when: float, action: Action) -> None:
        """Schedule an action; a time in the past is now."""
        heapq.heappush(self._actions, (max(when, self._now), next(self._numbers), action))

    def after(self, seconds: float, action: Action) -> None:
        """Schedule an action after a number of seconds."""
        self.at(self._now + seconds, action)

    def next_at(self) -> float | None:
        """Return the time of the next action; None if none is scheduled."""
        return self._actions[0][0] if self._actions else None

    def move_to(self, when: float) -> None:
        """Let time pass without running any action; time never goes back."""
        self._now = max(self._now, when)

    def run(self, until: float) -> int:
        """Run all actions up to a time, move to it, and return how many ran."""
        ran = 0
        actions = self._actions
        while actions and actions[0][0] <= until:
            self._now, _, action = heapq.heappop(actions)
            ran += 1
            action()
        self.move_to(until)
        return ran
