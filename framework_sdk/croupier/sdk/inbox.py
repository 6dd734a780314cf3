"""Events that wait for the framework's handlers, in order of arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from croupier.model.task import TaskStatus
from croupier.sdk.offer import Offer


@dataclass(frozen=True, slots=True)
class OffersArrived:
    """New offers."""

    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class UpdateArrived:
    """A status update, new or sent again."""

    status: TaskStatus


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """A call of a handler whose result decides nothing.

    Attributes:
        name: of the handler.
        ids: for the log if it raises.
    """

    name: str
    call: Callable[[], Awaitable[None]]
    ids: Mapping[str, str] = field(default_factory=dict)


Item = OffersArrived | UpdateArrived | HandlerCall


class Inbox:
    """A queue whose writer stops reading from the stream while it is full.

    A handler that waits for a verdict cannot empty the queue, and the verdict comes over the
    stream that fills it. So reading continues while calls are unanswered, until four times the
    limit; then they run into their deadline.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queue: deque[Item] = deque()
        self._arrived = asyncio.Event()
        self._shrunk = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, item: Item) -> None:
        """Queue `item`; do nothing once the inbox is closed."""
        if not self._closed:
            self._queue.append(item)
            self._arrived.set()

    def close(self) -> None:
        """Drop all items, and accept no more."""
        self._closed = True
        self._queue.clear()
        self._arrived.set()
        self._shrunk.set()

    def recheck(self) -> None:
        """Wake the writer that waits in `room`: a call was made or answered."""
        self._shrunk.set()

    def is_full(self, unanswered: int) -> bool:
        """Return whether to stop reading, with that many calls waiting for verdicts."""
        return len(self._queue) >= self._limit * (4 if unanswered else 1)

    async def room(self) -> None:
        """Wait for the queue to shrink, or for `recheck`."""
        self._shrunk.clear()
        await self._shrunk.wait()

    async def take(self) -> Item | None:
        """Return the next item, with consecutive offers as one; None once the inbox is closed."""
        while not self._queue:
            if self._closed:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        item = self._queue.popleft()
        if isinstance(item, OffersArrived):
            item = self._merged(item)
        self._shrunk.set()
        return item

    def _merged(self, first: OffersArrived) -> OffersArrived:
        offers = list(first.offers)
        while self._queue and isinstance(following := self._queue[0], OffersArrived):
            offers += following.offers
            self._queue.popleft()
        return OffersArrived(tuple(offers))
