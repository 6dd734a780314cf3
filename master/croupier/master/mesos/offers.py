"""The offers of one framework, and its RESERVE and UNRESERVE: holds of its role, without an end.

Mesos names reserved resources by their amount, not by a name. So UNRESERVE ends the holds of the
offers in its ACCEPT, and only if it names all that these offer.
"""

from __future__ import annotations

from collections.abc import Iterable
from secrets import token_hex

from croupier.master.core.messages import Offered
from croupier.master.mesos.amounts import resources_from_json
from croupier.mesos.fields import Json, entries, text
from croupier.model.errors import InvalidRequest
from croupier.model.ids import OfferId
from croupier.model.resources import sum_of
from croupier.v1 import framework_pb2 as pb
from croupier.wire.resources import resources_from_wire


class Offers:
    """Knows the offers that a framework has."""

    def __init__(self) -> None:
        """Begin without offers."""
        self._offers: dict[OfferId, Offered] = {}

    def offered(self, offer: Offered) -> None:
        """Note an offer."""
        self._offers[offer.offer_id] = offer

    def ended(self, offer_ids: Iterable[str]) -> None:
        """Forget offers that have ended."""
        for offer_id in offer_ids:
            self._offers.pop(OfferId(offer_id), None)

    def check_agent(self, offer_ids: Iterable[str], agent_id: str) -> None:
        """Check that a task is for the agent of its offers; offers that have ended are not.

        Raises:
            InvalidRequest: if it is for another one.
        """
        for offer in self._known(offer_ids):
            if offer.agent.agent_id != agent_id:
                raise InvalidRequest(
                    f"the task names agent {agent_id[:80]!r}, but its offer is of another one"
                )

    def reserve(self, of: Json, offer_ids: Iterable[str]) -> pb.Operation:
        """Return the operation for a RESERVE on these offers.

        Raises:
            InvalidRequest: if it is malformed, or for another role than the offers'.
        """
        listed = entries(of, "reserve", "resources")
        resources = resources_from_json(listed)
        # Malformed, they would refuse the whole ACCEPT.
        resources_from_wire(resources)
        named = {text(each, "role") for resource in listed for each in _reservations(resource)}
        offered = {offer.role for offer in self._known(offer_ids)}
        if offered and (others := sorted(named - offered)):
            raise InvalidRequest(f"RESERVE for role {others[0][:80]!r}: its offers are of another")
        hold = pb.Hold(hold_id=f"mesos-{token_hex(8)}", resources=resources, for_role=True)
        return pb.Operation(hold=hold)

    def unreserve(self, of: Json, offer_ids: Iterable[str]) -> pb.Operation:
        """Return the operation for an UNRESERVE on these offers.

        Raises:
            InvalidRequest: if it does not name what they offer of their holds.
        """
        named = resources_from_json(entries(of, "unreserve", "resources"))
        found = [each for each in self._known(offer_ids) if each.hold_id]
        if not found or resources_from_wire(named) != sum_of(each.resources for each in found):
            raise InvalidRequest("UNRESERVE must name all reserved resources of its offers")
        hold_ids = [each.hold_id for each in found]
        return pb.Operation(release=pb.Release(hold_ids=hold_ids))

    def _known(self, offer_ids: Iterable[str]) -> list[Offered]:
        return [self._offers[OfferId(each)] for each in offer_ids if each in self._offers]


def _reservations(resource: Json) -> list[Json]:
    """Return what names the roles of a resource; in the older format, the resource itself."""
    if "reservations" in resource:
        return entries(resource, "reservations")
    return [resource] if text(resource, "role", "*") != "*" else []
