"""Answers that many callers share, made once in a while.

Rule: all answers together cost a bounded part of the processor, however many callers with
permissions of their own there are. If that is used up, a caller gets its last answer again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from croupier.master.core.state import State
from croupier.master.services.paging import Read
from croupier.model.clock import Clock
from croupier.model.errors import Unavailable
from croupier.model.token_bucket import Bucket

SLICE_S: Final = 0.002
# Items between two looks at the clock.
ITEMS: Final = 32

ItemT = TypeVar("ItemT")

# An answer serves for this time, or for so many times the work that it cost: so it costs at most
# 2 % of the processor.
SHARED_S: Final = 1.0
SPARED: Final = 50
# An answer that no new one may replace serves for this time.
KEPT_S: Final = 60.0
MOST_KEPT: Final = 64
# Part of the processor for the answers of one budget, seconds of work at once, and answers that are
# made at the same time.
LOAD: Final = 0.1
BURST_S: Final = 0.5
AT_ONCE: Final = 4

T = TypeVar("T")


class Walk:
    """Visits items of the state; `cost_s`: how long it has held the loop."""

    def __init__(self, read: Read) -> None:
        self.cost_s = 0.0
        self._read = read

    async def over(
        self,
        list_items: Callable[[State], list[ItemT]],
        visit: Callable[[State, Sequence[ItemT]], None],
        at_once: int = ITEMS,
    ) -> None:
        """Call `visit` with `at_once` items at a time; some may disappear. Raises CroupierError."""
        items = await self._read(list_items)
        at = 0

        def some(state: State) -> int:
            begun, end = time.perf_counter(), at
            while end < len(items):
                visit(state, items[end : end + at_once])
                end += at_once
                if time.perf_counter() - begun >= SLICE_S:
                    break
            self.cost_s += time.perf_counter() - begun
            return end

        while at < len(items):
            at = await self._read(some)


@dataclass(frozen=True, slots=True)
class Made(Generic[T]):
    """An answer, the seconds of work that it cost, and its bytes if the memory for it is bound."""

    answer: T
    cost_s: float = 0.0
    size: int = 0


class Overspent(Unavailable):
    """A budget is used up."""


class Budget:
    """The work for callers with permissions of their own."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._turns = clock, asyncio.Semaphore(AT_ONCE)
        self._work = Bucket(LOAD, BURST_S, clock.now())

    async def spend(self, make: Callable[[], Awaitable[Made[T]]]) -> Made[T]:
        """Return the result of `make`, and charge its cost; raises Overspent if nothing is left."""
        async with self._turns:
            if self._work.debt_s(self._clock.now()) > 0:
                raise Overspent(
                    "too many callers with permissions of their own ask for the state of the"
                    " cluster; try again in a few seconds"
                )
            made = await make()
            self._work.take(made.cost_s, self._clock.now())
            return made


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    """The latest answer of a key.

    Attributes:
        made_at, until: when it was made, and until when it is fresh, on the monotonic clock.
        cost_s: of the budget; 0 without one.
    """

    made: Made[T]
    made_at: float
    until: float
    cost_s: float


class Shared(Generic[T]):
    """The latest answer for each key, such as a set of permissions."""

    def __init__(
        self, clock: Clock, most: int = MOST_KEPT, kept_s: float = KEPT_S, most_bytes: int = 0
    ) -> None:
        """Keep the latest `most` answers, of at most `most_bytes` together, for `kept_s`."""
        self._clock, self._most, self._kept_s = clock, most, kept_s
        self._most_bytes, self._bytes = most_bytes, 0
        self._making: dict[Hashable, asyncio.Task[T]] = {}
        # The oldest first.
        self._kept: dict[Hashable, _Kept[T]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def get(
        self, key: Hashable, make: Callable[[], Awaitable[Made[T]]], budget: Budget | None = None
    ) -> T:
        """Return the answer of `key`; `make` makes it if there is none that is young enough.

        If the budget does not permit that, an answer serves for up to a minute. Raises Overspent if
        the budget permits no answer, and there is no old one; Exception as `make`, for all who wait
        for that answer.
        """
        known = self._kept.get(key)
        if known is not None and self._clock.now() < known.until:
            return known.made.answer
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = asyncio.create_task(self._make(key, make, budget))
            # An error that no caller is left for is no error of the loop.
            making.add_done_callback(lambda made: made.cancelled() or made.exception())
        # A caller who leaves must not end it for the others.
        return await asyncio.shield(making)

    async def _make(
        self, key: Hashable, make: Callable[[], Awaitable[Made[T]]], budget: Budget | None
    ) -> T:
        try:
            made = await (make() if budget is None else budget.spend(make))
        except Overspent:
            known = self._kept.get(key)
            if known is None or self._clock.now() >= known.made_at + self._kept_s:
                raise
            return known.made.answer
        else:
            self._keep(key, made, 0.0 if budget is None else made.cost_s)
            return made.answer
        finally:
            del self._making[key]

    def _keep(self, key: Hashable, made: Made[T], cost_s: float) -> None:
        now = self._clock.now()
        self._drop(key)
        if made.size > self._most_bytes:
            return
        while self._kept:
            oldest = next(iter(self._kept))
            is_old = self._kept[oldest].made_at + self._kept_s <= now
            is_full = self._bytes + made.size > self._most_bytes or len(self._kept) >= self._most
            if not is_old and not is_full:
                break
            self._drop(oldest)
        serves_s = max(SHARED_S, SPARED * made.cost_s)
        if cost_s:
            # Each caller of a budget has the same part of it.
            together_s = cost_s + sum(each.cost_s for each in self._kept.values())
            serves_s = max(serves_s, min(KEPT_S, together_s / LOAD))
        kept = self._kept[key] = _Kept(made, now, now + serves_s, cost_s)
        self._bytes += made.size
        if made.size:
            # Without this, an answer that is not asked for again would stay in memory.
            asyncio.get_running_loop().call_later(self._kept_s, self._forget, key, kept)

    def _forget(self, key: Hashable, kept: _Kept[T]) -> None:
        if self._kept.get(key) is kept:
            self._drop(key)

    def _drop(self, key: Hashable) -> None:
        known = self._kept.pop(key, None)
        self._bytes -= 0 if known is None else known.made.size
