"""Offers: made from grants, accepted, declined, rescinded, expired."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.master.allocator.grant import Grant
from croupier.master.core.deadlines import OfferExpiry
from croupier.master.core.effects import Effect, Happened, Send
from croupier.master.core.facts import OfferEnded, OfferMade, OfferOutcome, OffersUnanswered
from croupier.master.core.messages import Offered, Rescinded
from croupier.master.core.offers import Offer
from croupier.master.core.state import State
from croupier.model.ids import NO_HOLD, FrameworkId, OfferId


def offer(state: State, grant: Grant, lease_s: float, now: float) -> Iterator[Effect]:
    """Offer a grant for `lease_s` seconds. The framework and the agent must be connected."""
    hold = state.places.get(grant.agent_id)
    agent = state.agents[grant.agent_id if hold is None else hold.agent_id]
    framework = state.frameworks[grant.framework_id]
    assert framework.session is not None
    assert agent.session is not None
    made = Offer(
        OfferId(state.next_id("O")),
        framework.framework_id,
        agent.agent_id,
        grant.role,
        grant.resources,
        grant.units,
        made_at=now,
        expires_at=now + lease_s,
        kept_since=state.allocator.answers.kept_since(grant.framework_id, grant.agent_id, now),
        hold_id=NO_HOLD if hold is None else hold.hold_id,
    )
    state.offers[made.offer_id] = made
    framework.offers[made.offer_id] = made
    agent.offers[made.offer_id] = made
    state.deadlines.set(OfferExpiry(made.offer_id), _review_at(state, made, now))
    state.usage.offer(framework.account(made.role), made.resources.scalars)
    if hold is not None:
        state.usage.touch(hold.hold_id)
    description = agent.describe()
    message = Offered(made.offer_id, description, made.role, made.resources, lease_s, made.hold_id)
    yield Send(framework.session, message)
    yield Happened(OfferMade(made.offer_id, made.framework_id, made.agent_id))


def end_offer(
    state: State, offer: Offer, outcome: OfferOutcome, message: str, now: float
) -> Effect:
    """End an offer without releasing its resources."""
    del state.offers[offer.offer_id]
    framework = state.frameworks[offer.framework_id]
    del framework.offers[offer.offer_id]
    del state.agents[offer.agent_id].offers[offer.offer_id]
    state.deadlines.cancel(OfferExpiry(offer.offer_id))
    state.usage.offer(framework.account(offer.role), offer.resources.scalars, -1)
    if offer.hold_id:
        state.usage.touch(offer.hold_id)
    return Happened(
        OfferEnded(offer.offer_id, offer.framework_id, outcome, now - offer.made_at, message)
    )


def return_offer(
    state: State,
    offer: Offer,
    outcome: OfferOutcome,
    message: str,
    now: float,
    refuse_s: float | None = None,
    *,
    by_master: bool = False,
) -> Iterator[Effect]:
    """End an offer that was not used, and release its resources.

    `refuse_s` sets a filter of that duration; with 0 it lasts until the agent's round ends.
    `by_master` is whether the master took the offer back for a reason of its own.
    """
    yield end_offer(state, offer, outcome, message, now)
    if not by_master:
        yield from note_unused(state, offer, now)
    if refuse_s is not None:
        state.preemptor.declined(offer.framework_id, offer.role, now)
    state.allocator.settle_offers(
        offer.framework_id,
        offer.role,
        offer.place,
        offer.units,
        unused=offer.resources,
        refused_until=None if refuse_s is None else now + refuse_s,
    )


def note_unused(state: State, offer: Offer, now: float) -> Iterator[Effect]:
    """Note that an offer ended without a launch: its framework's party may have to back off."""
    if offer.hold_id:
        # Nobody else waits for it, and its owner is charged for it anyway.
        return
    framework_id, kept_since = offer.framework_id, offer.kept_since
    back_off_s = state.allocator.answers.unused(framework_id, offer.place, kept_since, now)
    if back_off_s is not None:
        _review_offers(state, framework_id, now)
        yield Happened(OffersUnanswered(framework_id, offer.agent_id, now - kept_since, back_off_s))


def _review_offers(state: State, framework_id: FrameworkId, now: float) -> None:
    """Shorten the offers of a party that begins to back off, if others wait."""
    owner = state.frameworks[framework_id].owner
    for framework in state.frameworks.values():
        if framework.framework_id == framework_id or (owner and framework.owner == owner):
            for offer in framework.offers.values():
                state.deadlines.set(OfferExpiry(offer.offer_id), _review_at(state, offer, now))


def _review_at(state: State, offer: Offer, now: float) -> float:
    """Return until when an offer stands, even if its framework backs off and others wait."""
    if offer.hold_id:
        return offer.expires_at
    return state.allocator.answers.review_at(offer.framework_id, offer.expires_at, now)


def on_offer_due(state: State, offer: Offer, now: float) -> Iterator[Effect]:
    """End an offer if its lease is over, or if its framework backs off and others wait."""
    message = "its lease ended"
    review_at = _review_at(state, offer, now)
    if review_at > now:
        if review_at == offer.expires_at or not state.allocator.answers.others_wait(now):
            state.deadlines.set(OfferExpiry(offer.offer_id), review_at)
            return
        message = "others wait, and earlier offers were left unanswered"
    # An expired offer counts as declined. Otherwise a framework that never answers
    # would be offered the same agent again and again.
    yield from rescind(state, offer, message, now, state.settings.refuse_s)


def rescind(
    state: State, offer: Offer, message: str, now: float, refuse_s: float | None = None
) -> Iterator[Effect]:
    """Rescind an offer, and notify its framework if it is connected."""
    session = state.frameworks[offer.framework_id].session
    outcome: OfferOutcome = "rescinded" if refuse_s is None else "expired"
    by_master = refuse_s is None
    yield from return_offer(state, offer, outcome, message, now, refuse_s, by_master=by_master)
    if session is not None:
        yield Send(session, Rescinded(offer.offer_id, message))
