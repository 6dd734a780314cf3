"""What waits for the task that owns the state: events in order, bounded, taken in batches."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

LIMIT = 10_000

EventT = TypeVar("EventT")


class Inbox(Generic[EventT]):
    """Many writers, one reader, one loop."""

    def __init__(self) -> None:
        """Begin empty."""
        self._events: deque[EventT] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._events)

    async def put(self, event: EventT) -> None:
        """Queue an event, waiting while there are too many: the peer's stream waits with us."""
        while not self._room.is_set():
            await self._room.wait()
        self.put_now(event)

    def put_now(self, event: EventT) -> None:
        """Queue an event that must not be lost or delayed, such as a session's end."""
        self._events.append(event)
        if len(self._events) >= LIMIT:
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
        """Take out up to `most` events."""
        batch = [self._events.popleft() for _ in range(min(most, len(self._events)))]
        if len(self._events) < LIMIT:
            self._room.set()
        return batch


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
