"""What has arrived and waits for the framework's handlers, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from croupier.model.task import TaskStatus
from croupier.sdk.failure import Failure
from croupier.sdk.offer import Offer
from croupier.sdk.preempt import PreemptRequest


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The master took the framework in."""

    framework_id: str


@dataclass(frozen=True, slots=True)
class OffersArrived:
    """New offers."""

    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class OfferRescinded:
    """An offer that the framework has seen is no more."""

    offer_id: str


@dataclass(frozen=True, slots=True)
class UpdateArrived:
    """A status update, new or sent again."""

    status: TaskStatus


@dataclass(frozen=True, slots=True)
class AgentLost:
    """An agent is lost."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class RoomWanted:
    """The master wants tasks ended."""

    request: PreemptRequest


Item = Subscribed | OffersArrived | OfferRescinded | UpdateArrived | AgentLost | RoomWanted


class Inbox:
    """A queue that its writer is asked to respect: it waits for `room` before it reads on.

    A handler that waits for a verdict cannot empty the queue, and the verdict comes over the
    stream that fills it. So reading goes on while calls are unanswered, until four
    times the limit; then they run into their deadline.
    """

    def __init__(self, limit: int) -> None:
        """Be full from `limit` items on."""
        self._limit = limit
        self._queue: deque[Item] = deque()
        self._arrived = asyncio.Event()
        self._shrunk = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, item: Item) -> None:
        """Queue `item`; nothing happens once the inbox is closed."""
        if not self._closed:
            self._queue.append(item)
            self._arrived.set()

    def close(self) -> None:
        """Forget what is queued and take in nothing more."""
        self._closed = True
        self._queue.clear()
        self._arrived.set()
        self._shrunk.set()

    def recheck(self) -> None:
        """A call was made or answered: whoever waits for room looks again."""
        self._shrunk.set()

    def is_full(self, unanswered: int) -> bool:
        """Whether to stop reading, with that many calls waiting for verdicts."""
        return len(self._queue) >= self._limit * (4 if unanswered else 1)

    async def room(self) -> None:
        """Wait for the queue to shrink, or for `recheck`."""
        self._shrunk.clear()
        await self._shrunk.wait()

    async def take(self) -> Item | None:
        """The next item, all offers in a row as one; None once the inbox is closed."""
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
