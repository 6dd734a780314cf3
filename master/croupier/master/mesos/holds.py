"""RESERVE and UNRESERVE of one framework: holds of its role, without an end.

Mesos names reserved resources by their amount, not by a name. So UNRESERVE ends the holds of the
offers in its ACCEPT, and only if it names all that these offer.
"""

from __future__ import annotations

from collections.abc import Iterable
from secrets import token_hex

from croupier.master.core.messages import Offered
from croupier.master.mesos.amounts import resources_from_json
from croupier.mesos.fields import Json, entries, entry
from croupier.model.errors import InvalidRequest
from croupier.model.ids import HoldId, OfferId
from croupier.model.resources import Resources, sum_of
from croupier.v1 import framework_pb2 as pb
from croupier.wire.resources import resources_from_wire


class Holds:
    """Knows the holds of the offers that a framework has."""

    def __init__(self) -> None:
        """Begin without offers."""
        self._offered: dict[OfferId, tuple[HoldId, Resources]] = {}

    def offered(self, offer: Offered) -> None:
        """Note an offer."""
        if offer.hold_id:
            self._offered[offer.offer_id] = (offer.hold_id, offer.resources)

    def ended(self, offer_ids: Iterable[str]) -> None:
        """Forget offers that have ended."""
        for offer_id in offer_ids:
            self._offered.pop(OfferId(offer_id), None)

    def reserve(self, of: Json) -> pb.Operation:
        """Return the operation for a RESERVE; raises InvalidRequest if it is malformed."""
        resources = resources_from_json(entries(entry(of, "reserve"), "resources"))
        hold = pb.Hold(hold_id=f"mesos-{token_hex(8)}", resources=resources, for_role=True)
        return pb.Operation(hold=hold)

    def unreserve(self, of: Json, offer_ids: Iterable[str]) -> pb.Operation:
        """Return the operation for an UNRESERVE on these offers.

        Raises:
            InvalidRequest: if it does not name what they offer of their holds.
        """
        named = resources_from_json(entries(entry(of, "unreserve"), "resources"))
        found = [self._offered[OfferId(each)] for each in offer_ids if each in self._offered]
        if not found or resources_from_wire(named) != sum_of(each for _, each in found):
            raise InvalidRequest("UNRESERVE must name all reserved resources of its offers")
        hold_ids = [hold_id for hold_id, _ in found]
        return pb.Operation(release=pb.Release(hold_ids=hold_ids))
