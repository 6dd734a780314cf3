"""What waits for the driver: events, in order."""

from __future__ import annotations

import asyncio
from collections import deque

from croupier.agent.core.events import Event


class Inbox:
    """Many writers, one reader, one loop.

    It is bounded by what can happen in one turn of the loop, for the driver takes all of
    it in each: one message of the master's, and the end of each process that runs.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> None:
        """Queue an event."""
        self._events.append(event)
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

    def take(self) -> list[Event]:
        """Take out everything."""
        batch = list(self._events)
        self._events.clear()
        return batch


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
