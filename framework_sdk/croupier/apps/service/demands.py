"""What a service asks of the master, and what it is offered."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from croupier.apps.service.core.placement import Room, avoided_places, place_counts
from croupier.apps.service.core.slot import Slot
from croupier.apps.service.core.state import Service
from croupier.apps.service.file import template_of
from croupier.apps.service.template import Template
from croupier.model.errors import InvalidRequest
from croupier.net.address import Address
from croupier.sdk import Demand, Offer


class Demands:
    """The demands of one service, by the templates of its versions."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._templates: dict[int, Template] = {}

    def template(self, number: int) -> Template:
        """Return how the instances of a version are made."""
        if number not in self._templates:
            self._templates[number] = template_of(self._service.versions[number].content)
        return self._templates[number]

    def of(self, version: int, count: int, avoided: Iterable[str]) -> Demand:
        """Return the demand for `count` instances of a version, but on no `avoided` place."""
        return self.template(version).demand(count, self._service.rules.spread, avoided)

    def room(self, offer: Offer) -> Room:
        """Return an offer as the core sees it."""
        spread = self._service.rules.spread
        if not spread:
            where = offer.agent_id
        elif spread == "hostname":
            where = offer.hostname
        else:
            where = offer.attributes.get(spread, "")
        return Room(offer.id, offer.agent_id, _host(offer), where, offer.resources, offer.isolation)

    def wanted(self, now: float) -> list[Demand]:
        """Return what is lacking; offers of nothing else are made."""
        service = self._service
        due: dict[int, list[Slot]] = {}
        for slot in service.launches_due(now):
            if slot.version in service.versions:
                due.setdefault(slot.version, []).append(slot)
        if not due:
            return [self.of(service.target, 0, ())]
        counts = place_counts(service)
        demands: dict[tuple[object, ...], Demand] = {}
        for version, slots in due.items():
            longest = min(slots, key=lambda s: now if s.wanted_since is None else s.wanted_since)
            demand = self.of(version, len(slots), avoided_places(service, longest, counts, now))
            # Versions of one shape are one demand.
            key = (demand.unit, frozenset(demand.constraints))
            if key in demands:
                count = len(slots) + (demands[key].count or 0)
                demand = self.of(version, count, avoided_places(service, longest, counts, now))
            demands[key] = demand
        return list(demands.values())


def _host(offer: Offer) -> str:
    """Return the address at which the ports of the agent's tasks are reached."""
    with suppress(InvalidRequest):
        return Address.parse(offer.http_address.rpartition("//")[2]).host
    return offer.hostname
