"""What waits for the task that owns the state: events in order, bounded, taken in batches.

Each event has a cost, in units of about 20 us of work. The bound and the batches count cost:
few heavy events are as much as many light ones.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

LIMIT = 10_000

EventT = TypeVar("EventT")


class Inbox(Generic[EventT]):
    """Many writers, one reader, one loop."""

    def __init__(self, cost: Callable[[EventT], int] | None = None) -> None:
        """Begin empty; `cost` weighs an event, each is 1 without it."""
        self._cost = cost
        self._events: deque[tuple[EventT, int]] = deque()
        self._weight = 0
        self._waiter: asyncio.Future[None] | None = None
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._events)

    async def put(self, event: EventT) -> None:
        """Queue an event, waiting while there is too much: the peer's stream waits with us."""
        while not self._room.is_set():
            await self._room.wait()
        self.put_now(event)

    def put_now(self, event: EventT) -> None:
        """Queue an event that must not be lost or delayed, such as a session's end."""
        cost = 1 if self._cost is None else self._cost(event)
        self._events.append((event, cost))
        self._weight += cost
        if self._weight >= LIMIT:
            self._room.clear()
        if self._waiter is not None:
            _wake(self._waiter)

    async def wait(self, timeout_s: float | None) -> None:
        """Wait until there is an event, at most `timeout_s` seconds; None has no end.

        Everybody else has a turn in any case.
        """
        if self._events or (timeout_s is not None and timeout_s <= 0):
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        alarm = None if timeout_s is None else loop.call_later(timeout_s, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if alarm is not None:
                alarm.cancel()

    def take(self, most: int) -> list[EventT]:
        """Take out events of a cost of up to `most`, or one that costs more."""
        batch: list[EventT] = []
        taken = 0
        while self._events and (not batch or taken + self._events[0][1] <= most):
            event, cost = self._events.popleft()
            taken += cost
            batch.append(event)
        self._weight -= taken
        if self._weight < LIMIT:
            self._room.set()
        return batch


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
