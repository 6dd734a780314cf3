"""RESERVE and UNRESERVE in an ACCEPT: holds of the framework's role, without an end.

Mesos names reserved resources by their amount, not by a name. So UNRESERVE ends the holds of the
offers in its ACCEPT, and only if it names all that these offer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Final

from croupier.master.core.offers import Offer
from croupier.master.mesos.amounts import resources_from_json
from croupier.mesos.fields import Json, entries, text
from croupier.model.errors import InvalidRequest
from croupier.model.resources import sum_of
from croupier.v1 import framework_pb2 as pb
from croupier.wire.resources import resources_to_wire


def _reserve(of: Json, offers: list[Offer]) -> pb.Operation:
    listed = entries(of, "reserve", "resources")
    resources = resources_to_wire(resources_from_json(listed))
    named = {text(each, "role") for resource in listed for each in _reservations(resource)}
    if offers and (others := sorted(named - {offer.role for offer in offers})):
        raise InvalidRequest(f"RESERVE for role {others[0][:80]!r}: its offers are of another")
    hold = pb.Hold(hold_id=f"mesos-{token_hex(8)}", resources=resources, for_role=True)
    return pb.Operation(hold=hold)


def _unreserve(of: Json, offers: list[Offer]) -> pb.Operation:
    named = resources_from_json(entries(of, "unreserve", "resources"))
    held = [offer for offer in offers if offer.hold_id]
    if not held or named != sum_of(offer.resources for offer in held):
        raise InvalidRequest("UNRESERVE must name all reserved resources of its offers")
    return pb.Operation(release=pb.Release(hold_ids=[offer.hold_id for offer in held]))


# Each is made of its JSON and the offers of its ACCEPT; raises InvalidRequest if it is malformed,
# or for resources of others.
OPERATIONS: Final[Mapping[str, Callable[[Json, list[Offer]], pb.Operation]]] = {
    "RESERVE": _reserve,
    "UNRESERVE": _unreserve,
}


def _reservations(resource: Json) -> list[Json]:
    """Return what names the roles of a resource; in the older format, the resource itself."""
    if "reservations" in resource:
        return entries(resource, "reservations")
    return [resource] if text(resource, "role", "*") != "*" else []
