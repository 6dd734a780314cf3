"""Long work on the loop, a few milliseconds at a time.

Rule: what takes longer than a slice gives every other task of the loop a turn in between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

SLICE_S = 0.005

T = TypeVar("T")


class TimeSlice:
    """How long the present task has held the loop."""

    __slots__ = ("_now", "_seconds", "_until")

    def __init__(
        self, seconds: float = SLICE_S, now: Callable[[], float] = time.perf_counter
    ) -> None:
        """Begin a slice of so many seconds by the clock `now`."""
        self._seconds, self._now = seconds, now
        self._until = now() + seconds

    def begin(self) -> None:
        """Begin anew: the others have just had a turn."""
        self._until = self._now() + self._seconds

    @property
    def is_over(self) -> bool:
        """Whether the others are to have a turn."""
        return self._now() >= self._until

    async def give_way(self) -> None:
        """Give every other task that is ready a turn, and begin anew."""
        await asyncio.sleep(0)
        self.begin()


async def sliced(items: Iterable[T]) -> list[T]:
    """Make a list of `items`, which may take long to make, in slices."""
    made: list[T] = []
    held = TimeSlice()
    for item in items:
        made.append(item)
        if held.is_over:
            await held.give_way()
    return made
