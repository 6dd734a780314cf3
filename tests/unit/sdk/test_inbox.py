"""The queue of events for the handlers."""

from __future__ import annotations

import asyncio

from croupier.sdk.dispatch import HandlerCall, Inbox
from tests.unit.sdk.test_offer_book import offer


async def nothing() -> None:
    return


CALL = HandlerCall("on_subscribed", nothing)


class TestInbox:
    async def test_consecutive_offers_are_one_item(self) -> None:
        inbox = Inbox(10)
        inbox.put((offer("o1"),))
        inbox.put((offer("o2"),))
        inbox.put(CALL)
        inbox.put((offer("o3"),))
        first = await inbox.take()
        assert isinstance(first, tuple)
        assert [o.id for o in first] == ["o1", "o2"]
        assert await inbox.take() == CALL
        assert len(inbox) == 1

    def test_an_inbox_is_full_at_its_limit_or_four_times_that_while_a_call_is_unanswered(
        self,
    ) -> None:
        inbox = Inbox(2)
        for _ in range(2):
            inbox.put(CALL)
        assert inbox.is_full(unanswered=0)
        assert not inbox.is_full(unanswered=1)
        for _ in range(6):
            inbox.put(CALL)
        assert inbox.is_full(unanswered=1)

    async def test_taking_makes_room(self) -> None:
        inbox = Inbox(1)
        inbox.put(CALL)
        waiting = asyncio.create_task(inbox.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        await inbox.take()
        await waiting

    async def test_a_closed_inbox_is_empty(self) -> None:
        inbox = Inbox(1)
        inbox.put(CALL)
        inbox.close()
        inbox.put(CALL)
        assert await inbox.take() is None
