"""Events that wait for the task that owns the state: in order, bounded, taken in batches.

Each event has a cost, in units of about 20 us of work. The bound and the batches count cost, so a
few heavy events count like many light ones. A heavy event waits until the queue is short, so that
light events of other peers never wait behind many heavy ones. After `PATIENCE` batches the light
ones wait too, until the heavy one is queued, so that even a busy master decides it.

Events that can wait, such as heartbeats, do not wake the reader for `LATER_S`: thousands of idle
peers then cost a few batches each second, not one for each event.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

LIMIT = 10_000
# Above this cost an event is heavy. It waits until the queue costs less than CALM.
HEAVY = 200
CALM = 1_000
# About a second of batches of the master.
PATIENCE = 100
LATER_S = 0.05

EventT = TypeVar("EventT")


class Inbox(Generic[EventT]):
    """Many writers, one reader, one loop."""

    def __init__(
        self,
        cost: Callable[[EventT], int] | None = None,
        can_wait: Callable[[EventT], bool] = lambda _: False,
    ) -> None:
        """Start empty; `cost` returns the cost of an event, which is 1 without it."""
        self._cost, self._can_wait = cost, can_wait
        self._is_alarm_set = False
        self._events: deque[tuple[EventT, int]] = deque()
        self._weight = 0
        self._waiter: asyncio.Future[None] | None = None
        # The cost of all events that were ever put, and of those that were taken.
        self._put_total = self._taken_total = 0
        self._takers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._room, self._calm = asyncio.Event(), asyncio.Event()
        self._heavy = self._passed = 0
        self._admit()

    def __len__(self) -> int:
        return len(self._events)

    @property
    def position(self) -> int:
        """The position behind all events that are queued; it only grows."""
        return self._put_total

    def has_passed(self, position: int) -> bool:
        """Return whether everything before the position was taken."""
        return self._taken_total >= position

    async def wait_until_passed(self, position: int) -> None:
        """Wait until everything before the position was taken."""
        while not self.has_passed(position):
            waiter = asyncio.get_running_loop().create_future()
            heappush(self._takers, (position, next(self._numbers), waiter))
            await waiter

    async def put(self, event: EventT) -> None:
        """Queue an event; wait while the queue is full, which makes the peer's stream wait."""
        cost = self._cost_of(event)
        if cost > HEAVY:
            await self._wait_for_calm()
        else:
            while not self._room.is_set():
                await self._room.wait()
        self._put(event, cost)

    def put_now(self, event: EventT) -> None:
        """Queue an event at once, although the queue is full, such as a session's end."""
        self._put(event, self._cost_of(event))

    async def wait(self, timeout_s: float | None) -> None:
        """Wait for an event, `timeout_s` at most, unless None; other tasks get a turn at least."""
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
        """Remove and return events of a cost of up to `most`, or one that costs more."""
        batch: list[EventT] = []
        taken = 0
        while self._events and (not batch or taken + self._events[0][1] <= most):
            event, cost = self._events.popleft()
            taken += cost
            batch.append(event)
        self._weight -= taken
        self._taken_total += taken
        while self._takers and self.has_passed(self._takers[0][0]):
            _wake(heappop(self._takers)[2])
        self._passed += self._heavy > 0
        self._admit()
        return batch

    async def _wait_for_calm(self) -> None:
        self._heavy += 1
        try:
            while not self._calm.is_set():
                await self._calm.wait()
        finally:
            self._heavy -= 1
            self._passed = 0
            self._admit()

    def _admit(self) -> None:
        """Unblock writers if there is room, and block them if not."""
        is_held = self._heavy > 0 and self._passed >= PATIENCE
        _set(self._room, self._weight < LIMIT and not is_held)
        _set(self._calm, self._weight < CALM)

    def _cost_of(self, event: EventT) -> int:
        return 1 if self._cost is None else self._cost(event)

    def _put(self, event: EventT, cost: int) -> None:
        self._events.append((event, cost))
        self._weight += cost
        self._put_total += cost
        self._admit()
        if self._waiter is None:
            return
        if not self._can_wait(event):
            _wake(self._waiter)
        elif not self._is_alarm_set:
            self._is_alarm_set = True
            asyncio.get_running_loop().call_later(LATER_S, self._on_alarm)

    def _on_alarm(self) -> None:
        self._is_alarm_set = False
        if self._waiter is not None:
            _wake(self._waiter)


def _set(event: asyncio.Event, is_set: bool) -> None:
    if is_set != event.is_set():
        event.set() if is_set else event.clear()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
