"""The offers that a framework holds, and the placement of tasks on them.

Rule: an offer is in the book from its arrival until it is answered, rescinded, or voided by the
end of its stream. Only offers in the book whose lease runs are shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from croupier.sdk.offer import Offer
from croupier.sdk.task import Task

# An offer whose lease ended is kept this long, so that its RESCIND still reaches the handler.
KEEP_AFTER_LEASE_S = 60.0


@dataclass(slots=True)
class _Held:
    offer: Offer
    is_shown: bool = False


class OfferBook:
    """Offers by id, in order of arrival."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, offer_id: str) -> bool:
        return offer_id in self._held

    def add(self, offer: Offer, now: float) -> None:
        """Keep a new offer, and drop those whose lease ended long ago."""
        while self._held:
            oldest = next(iter(self._held.values())).offer
            if oldest.expires_at + KEEP_AFTER_LEASE_S > now:
                break
            del self._held[oldest.id]
        self._held[offer.id] = _Held(offer)

    def show(self, offers: Iterable[Offer], now: float) -> list[Offer]:
        """Return those of `offers` that are still valid, and mark them as shown."""
        valid: list[Offer] = []
        for offer in offers:
            held = self._held.get(offer.id)
            if held is None:
                continue
            if offer.expires_at <= now:
                del self._held[offer.id]
                continue
            held.is_shown = True
            valid.append(offer)
        return valid

    def answer(self, offer_ids: Iterable[str]) -> None:
        """Remove offers that the framework accepted or declined."""
        for offer_id in offer_ids:
            self._held.pop(offer_id, None)

    def rescind(self, offer_id: str) -> bool:
        """Remove an offer; return whether it was shown and not answered."""
        held = self._held.pop(offer_id, None)
        return held is not None and held.is_shown

    def clear(self) -> None:
        """Void all offers, as the end of their stream does."""
        self._held.clear()

    def check(self) -> None:
        """Assert every invariant; O(offers)."""
        assert all(offer_id == held.offer.id for offer_id, held in self._held.items())


def fit(offers: Iterable[Offer], tasks: Iterable[Task]) -> list[tuple[Offer, list[Task]]]:
    """Place each task, in order, on the first offer with room for it (first-fit).

    The offer's agent must also have the features that the task needs.

    Returns every offer, in order, with its tasks. An offer that is not needed has none;
    `Framework.accept` then declines it. A task that fits on no offer is in no list. Two offers of
    one agent are not combined. O(offers x tasks).
    """
    packed: list[tuple[Offer, list[Task]]] = [(offer, []) for offer in offers]
    room = [offer.resources for offer, _ in packed]
    for task in tasks:
        needs = task.needs
        for index, (_, chosen) in enumerate(packed):
            if task.resources <= room[index] and needs <= packed[index][0].isolation:
                room[index] -= task.resources
                chosen.append(task)
                break
    return packed
