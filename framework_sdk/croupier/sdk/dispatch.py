"""Calling the framework's handlers: one at a time, in order of arrival.

Rule: an exception in a handler is logged, and affects only that event.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from croupier.model.clock import Clock
from croupier.model.limits import DEFAULT_REFUSE_S
from croupier.model.task import TaskStatus
from croupier.net.task_scope import reraise_own_cancellation
from croupier.sdk.calls import Calls
from croupier.sdk.core.offers import OfferBook
from croupier.sdk.core.updates import UpdateBook, UpdateDecision
from croupier.sdk.log import log_event
from croupier.sdk.offer import Offer
from croupier.sdk.wire import decline_calls, withdraw_calls

if TYPE_CHECKING:
    from croupier.sdk.framework import Framework

E = TypeVar("E")
# After so many items the loop serves the stream, even if no handler waits.
_ITEMS_PER_TURN = 100


@dataclass(frozen=True, slots=True)
class HandlerCall(Generic[E]):
    """A call of a handler with its event; only whether it raised counts. The log shows `ids`."""

    handler: Callable[[E], Awaitable[None]]
    event: E
    ids: Mapping[str, str] = field(default_factory=dict)


# New offers; a status update, new or sent again; another event.
Item = tuple[Offer, ...] | TaskStatus | HandlerCall[Any]


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
        if isinstance(item, tuple):
            item = self._merged(item)
        self._shrunk.set()
        return item

    def _merged(self, first: tuple[Offer, ...]) -> tuple[Offer, ...]:
        offers = list(first)
        while self._queue and isinstance(following := self._queue[0], tuple):
            offers += following
            self._queue.popleft()
        return tuple(offers)


class Dispatcher:
    """Takes items from the inbox, calls the handlers, and acknowledges handled updates."""

    def __init__(
        self, framework: Framework, inbox: Inbox, book: OfferBook, calls: Calls, clock: Clock
    ) -> None:
        self._framework, self._inbox, self._book = framework, inbox, book
        self._calls, self._clock = calls, clock
        self._updates = UpdateBook()

    async def run(self) -> None:
        """Serve the handlers until the inbox is closed."""
        served = 0
        while (item := await self._inbox.take()) is not None:
            match item:
                case TaskStatus():
                    await self._serve_update(item)
                case HandlerCall():
                    await self.serve(item)
                case offers:
                    await self._serve_offers(offers)
            served += 1
            if served % _ITEMS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def serve(self, call: HandlerCall[Any]) -> bool:
        """Call one handler; return whether it returned without raising."""
        try:
            await call.handler(call.event)
        except (Exception, asyncio.CancelledError):
            reraise_own_cancellation()
            fields = {"handler": getattr(call.handler, "__name__", ""), **call.ids}
            log_event(logging.ERROR, "handler_failed", with_traceback=True, **fields)
            return False
        return True

    async def _serve_offers(self, arrived: tuple[Offer, ...]) -> None:
        offers = self._book.show(arrived, self._clock.now())
        if not offers or await self.serve(HandlerCall(self._framework.on_offers, list(offers))):
            return
        left = [offer.id for offer in offers if offer.id in self._book]
        self._book.answer(left)
        for call in decline_calls(left, DEFAULT_REFUSE_S, "handler raised"):
            self._calls.post(call)

    async def _serve_update(self, status: TaskStatus) -> None:
        decision = self._updates.decide(status)
        if decision is UpdateDecision.SHOW:
            ids = {"task_id": status.task_id, "state": status.state.name}
            if not await self.serve(HandlerCall(self._framework.on_update, status, ids)):
                self._updates.on_failed(status)
                return
            self._updates.on_handled(status)
        if decision is UpdateDecision.WITHDRAW:
            log_event(logging.WARNING, "ended_task_withdrawn", task_id=status.task_id)
            for call in withdraw_calls([status.task_id]):
                self._calls.post(call)
        elif decision is not UpdateDecision.HOLD and status.needs_acknowledgement:
            self._calls.acknowledge(status)
