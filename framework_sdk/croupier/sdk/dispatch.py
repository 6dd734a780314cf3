"""Calling the framework's handlers: one at a time, in order of arrival.

Rule: whatever a handler raises is logged, costs that one event, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Protocol

from croupier.model.clock import Clock
from croupier.model.errors import CroupierError
from croupier.model.limits import DEFAULT_REFUSE_S
from croupier.model.task import TaskStatus
from croupier.net.cancellation import reraise_own_cancellation
from croupier.sdk.calls import Calls
from croupier.sdk.core.offers import OfferBook
from croupier.sdk.core.updates import Judgement, UpdateBook
from croupier.sdk.failure import Failure
from croupier.sdk.inbox import (
    AgentLost,
    Inbox,
    Item,
    OfferRescinded,
    OffersArrived,
    RoomWanted,
    Subscribed,
    UpdateArrived,
)
from croupier.sdk.log import log_event
from croupier.sdk.offer import Offer
from croupier.sdk.preempt import PreemptRequest
from croupier.sdk.wire import decline_calls

# Handlers that never wait must not keep the stream from being served.
_ITEMS_PER_TURN = 100


class Handlers(Protocol):
    """What a framework may override; `croupier.sdk.Framework` says what each is told."""

    async def on_subscribed(self, framework_id: str) -> None:
        """The master took the framework in."""
        ...

    async def on_offers(self, offers: list[Offer]) -> None:
        """Offers arrived."""
        ...

    async def on_rescind(self, offer_id: str) -> None:
        """An offer is no more."""
        ...

    async def on_update(self, status: TaskStatus) -> None:
        """A task changed its state."""
        ...

    async def on_failure(self, failure: Failure) -> None:
        """An agent is lost."""
        ...

    async def on_preempt(self, request: PreemptRequest) -> None:
        """The master wants tasks ended."""
        ...

    async def on_error(self, error: CroupierError) -> None:
        """The framework is over."""
        ...


class Dispatcher:
    """Takes from the inbox, calls the handlers, acknowledges what they have handled."""

    def __init__(
        self, handlers: Handlers, inbox: Inbox, book: OfferBook, calls: Calls, clock: Clock
    ) -> None:
        """Serve `handlers` with what comes into `inbox`."""
        self._handlers, self._inbox, self._book = handlers, inbox, book
        self._calls, self._clock = calls, clock
        self._updates = UpdateBook()

    async def run(self) -> None:
        """Until the inbox is closed."""
        served = 0
        while (item := await self._inbox.take()) is not None:
            await self._serve(item)
            served += 1
            if served % _ITEMS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def on_error(self, error: CroupierError) -> None:
        """Tell the framework that it is over."""
        await self._guarded("on_error", self._handlers.on_error(error))

    async def _serve(self, item: Item) -> None:
        match item:
            case Subscribed(framework_id):
                await self._guarded("on_subscribed", self._handlers.on_subscribed(framework_id))
            case OffersArrived(offers):
                await self._serve_offers(offers)
            case OfferRescinded(offer_id):
                await self._guarded(
                    "on_rescind", self._handlers.on_rescind(offer_id), offer_id=offer_id
                )
            case UpdateArrived(status):
                await self._serve_update(status)
            case AgentLost(failure):
                await self._guarded(
                    "on_failure", self._handlers.on_failure(failure), agent_id=failure.agent_id
                )
            case RoomWanted(request):
                await self._guarded(
                    "on_preempt", self._handlers.on_preempt(request), agent_id=request.agent_id
                )

    async def _serve_offers(self, arrived: tuple[Offer, ...]) -> None:
        offers = self._book.show(arrived, self._clock.now())
        if not offers or await self._guarded("on_offers", self._handlers.on_offers(list(offers))):
            return
        left = [offer.id for offer in offers if offer.id in self._book]
        self._book.answer(left)
        for call in decline_calls(left, DEFAULT_REFUSE_S, "handler raised"):
            self._calls.post(call)

    async def _serve_update(self, status: TaskStatus) -> None:
        judgement = self._updates.judge(status)
        if judgement is Judgement.SHOW:
            handled = await self._guarded(
                "on_update",
                self._handlers.on_update(status),
                task_id=status.task_id,
                state=status.state.name,
            )
            if not handled:
                self._updates.on_failed(status)
                return
            self._updates.on_handled(status)
        if judgement is not Judgement.HOLD and status.needs_acknowledgement:
            self._calls.acknowledge(status)

    async def _guarded(self, handler: str, call: Awaitable[None], **ids: str) -> bool:
        """Await one handler; whether it returned."""
        try:
            await call
        except asyncio.CancelledError:
            reraise_own_cancellation()
            _log_failure(handler, ids)
        except Exception:
            _log_failure(handler, ids)
        else:
            return True
        return False


def _log_failure(handler: str, ids: Mapping[str, str]) -> None:
    """Log the exception that is being handled."""
    log_event(logging.ERROR, "handler_failed", with_traceback=True, handler=handler, **ids)
