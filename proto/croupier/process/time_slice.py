"""Long work on the event loop, in slices of a few milliseconds.

Rule: work that takes longer than a slice gives every other task of the loop a turn in between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

SLICE_S = 0.005

T = TypeVar("T")


class TimeSlice:
    """The time for which the current task may hold the loop."""

    __slots__ = ("_now", "_seconds", "_until")

    def __init__(
        self, seconds: float = SLICE_S, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._seconds, self._now = seconds, now
        self._until = now() + seconds

    def begin(self) -> None:
        """Start a new slice, after the other tasks have had a turn."""
        self._until = self._now() + self._seconds

    @property
    def is_over(self) -> bool:
        """Whether other tasks should get a turn."""
        return self._now() >= self._until

    async def give_way(self) -> None:
        """Yield once to all other ready tasks, and start a new slice."""
        await asyncio.sleep(0)
        self.begin()


async def sliced(items: Iterable[T]) -> list[T]:
    """Return a list of `items`, whose iteration may take long, in slices."""
    made: list[T] = []
    held = TimeSlice()
    for item in items:
        made.append(item)
        if held.is_over:
            await held.give_way()
    return made
