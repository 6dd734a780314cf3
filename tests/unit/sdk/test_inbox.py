"""What waits for the handlers."""

from __future__ import annotations

import asyncio

from croupier.sdk.inbox import Inbox, OfferRescinded, OffersArrived, Subscribed
from tests.unit.sdk.test_offer_book import offer


class TestInbox:
    async def test_offers_in_a_row_come_as_one(self) -> None:
        inbox = Inbox(10)
        inbox.put(OffersArrived((offer("o1"),)))
        inbox.put(OffersArrived((offer("o2"),)))
        inbox.put(OfferRescinded("o1"))
        inbox.put(OffersArrived((offer("o3"),)))
        first = await inbox.take()
        assert isinstance(first, OffersArrived)
        assert [o.id for o in first.offers] == ["o1", "o2"]
        assert await inbox.take() == OfferRescinded("o1")
        assert len(inbox) == 1

    def test_it_is_full_at_its_limit_and_at_four_times_that_while_a_verdict_is_due(self) -> None:
        inbox = Inbox(2)
        for _ in range(2):
            inbox.put(Subscribed("F"))
        assert inbox.is_full(unanswered=0)
        assert not inbox.is_full(unanswered=1)
        for _ in range(6):
            inbox.put(Subscribed("F"))
        assert inbox.is_full(unanswered=1)

    async def test_taking_makes_room(self) -> None:
        inbox = Inbox(1)
        inbox.put(Subscribed("F"))
        waiting = asyncio.create_task(inbox.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        await inbox.take()
        await waiting

    async def test_a_closed_inbox_is_empty(self) -> None:
        inbox = Inbox(1)
        inbox.put(Subscribed("F"))
        inbox.close()
        inbox.put(Subscribed("F"))
        assert await inbox.take() is None
