"""The offers that this framework holds.

Rule: an offer is in the book from its arrival until it is answered, rescinded or voided
by the end of its stream; only what is still in the book, with its lease running, is shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from croupier.sdk.offer import Offer

# An offer that the framework let lapse is kept a while longer, so that the master's word
# that it is gone still reaches the handler.
KEPT_AFTER_LEASE_S = 60.0


@dataclass(slots=True)
class _Held:
    offer: Offer
    shown: bool = False


class OfferBook:
    """Offers by id, in order of arrival."""

    def __init__(self) -> None:
        """Start with none."""
        self._held: dict[str, _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, offer_id: str) -> bool:
        return offer_id in self._held

    def add(self, offer: Offer, now: float) -> None:
        """Keep a new offer, and forget those that lapsed long ago."""
        while self._held:
            oldest = next(iter(self._held.values())).offer
            if oldest.expires_at + KEPT_AFTER_LEASE_S > now:
                break
            del self._held[oldest.id]
        self._held[offer.id] = _Held(offer)

    def show(self, offers: Iterable[Offer], now: float) -> list[Offer]:
        """Those of `offers` that still stand, which count as shown from here on."""
        standing: list[Offer] = []
        for offer in offers:
            held = self._held.get(offer.id)
            if held is None:
                continue
            if offer.expires_at <= now:
                del self._held[offer.id]
                continue
            held.shown = True
            standing.append(offer)
        return standing

    def answer(self, offer_ids: Iterable[str]) -> None:
        """These were accepted or declined: they are no longer held."""
        for offer_id in offer_ids:
            self._held.pop(offer_id, None)

    def rescind(self, offer_id: str) -> bool:
        """The master took it back; whether the framework has seen it and not answered it."""
        held = self._held.pop(offer_id, None)
        return held is not None and held.shown

    def clear(self) -> None:
        """The stream ended: all that came over it is void."""
        self._held.clear()

    def check(self) -> None:
        """Assert every invariant; O(offers)."""
        assert all(offer_id == held.offer.id for offer_id, held in self._held.items())
