"""Only valid offers are shown."""

from __future__ import annotations

from croupier.model.resources import Resources
from croupier.sdk.core.offers import KEEP_AFTER_LEASE_S, OfferBook
from croupier.sdk.offer import Offer
from tests.harness.still_clock import StillClock


def offer(offer_id: str, expires_at: float = 10.0, clock: StillClock | None = None) -> Offer:
    return Offer(
        id=offer_id,
        agent_id="a1",
        hostname="h1",
        resources=Resources.parse("cpus:1"),
        attributes={},
        role="*",
        http_address="",
        expires_at=expires_at,
        clock=clock or StillClock(),
    )


class TestOffer:
    def test_the_remaining_lease_falls_to_zero(self) -> None:
        clock = StillClock(at=4.0)
        held = offer("o1", 10.0, clock)
        assert held.expires_in_s == 6.0
        clock.at = 11.0
        assert held.expires_in_s == 0.0


class TestOfferBook:
    def test_an_offer_rescinded_while_it_waited_is_not_shown(self) -> None:
        book, first, second = OfferBook(), offer("o1"), offer("o2")
        book.add(first, 0.0)
        book.add(second, 0.0)
        assert not book.rescind("o1")
        assert book.show([first, second], 1.0) == [second]
        book.check()

    def test_an_offer_expired_while_it_waited_is_not_shown(self) -> None:
        book, late = OfferBook(), offer("o1", 10.0)
        book.add(late, 0.0)
        assert book.show([late], 10.0) == []
        assert "o1" not in book

    def test_a_rescind_matters_for_shown_unanswered_offers(self) -> None:
        book, first, second = OfferBook(), offer("o1"), offer("o2")
        for held in (first, second):
            book.add(held, 0.0)
        book.show([first, second], 1.0)
        book.answer(["o2"])
        assert book.rescind("o1")
        assert not book.rescind("o2")
        assert not book.rescind("never heard of")

    def test_the_end_of_a_stream_voids_all_offers(self) -> None:
        book, held = OfferBook(), offer("o1")
        book.add(held, 0.0)
        book.clear()
        assert book.show([held], 1.0) == []

    def test_offers_that_expired_long_ago_are_dropped(self) -> None:
        book = OfferBook()
        for number in range(5):
            book.add(offer(f"o{number}", 10.0), 0.0)
        book.add(offer("new", 200.0), 10.0 + KEEP_AFTER_LEASE_S)
        assert len(book) == 1
        book.check()
