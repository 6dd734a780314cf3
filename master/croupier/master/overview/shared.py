"""Answers that many callers share, made once in a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from croupier.model.clock import Clock

# An answer serves for this time, or for so many times the work that it cost: so it costs at most
# 2 % of the processor.
SHARED_S: Final = 1.0
SPARED: Final = 50
MOST_SHARED: Final = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Made(Generic[T]):
    """An answer, and the seconds of work that it cost."""

    answer: T
    cost_s: float


class Shared(Generic[T]):
    """The latest answer for each set of permissions."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._making: dict[Hashable, asyncio.Task[Made[T]]] = {}
        self._made: dict[Hashable, tuple[float, T]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Made[T]]]) -> T:
        """Return the answer of `key`; `make` makes it if there is none that is young enough.

        Raises:
            Exception: as `make`, for all who wait for that answer.
        """
        known = self._made.get(key)
        if known is not None and self._clock.now() < known[0]:
            return known[1]
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = asyncio.create_task(self._make(key, make))
        # A caller who leaves must not end it for the others.
        return (await asyncio.shield(making)).answer

    async def _make(self, key: Hashable, make: Callable[[], Awaitable[Made[T]]]) -> Made[T]:
        try:
            made = await make()
            now = self._clock.now()
            self._made = {k: each for k, each in self._made.items() if each[0] > now}
            if len(self._made) < MOST_SHARED:
                self._made[key] = (now + max(SHARED_S, SPARED * made.cost_s), made.answer)
            return made
        finally:
            del self._making[key]
