"""Operations in an ACCEPT that make and release holds of the framework's role, without an end.

Mesos names reserved resources by their amount, not by a name. So UNRESERVE ends the holds of the
offers in its ACCEPT, and only if it names all that these offer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Final

from croupier.master.core.offers import Offer
from croupier.master.mesos.amounts import is_volume, resources_from_json
from croupier.master.mesos.volumes import Volumes, add_volume, named_volume
from croupier.mesos.fields import Json, entries, text
from croupier.model.errors import InvalidRequest
from croupier.model.resources import sum_of
from croupier.v1 import framework_pb2 as pb
from croupier.wire.resources import resources_to_wire


def _reserve(of: Json, offers: list[Offer], _: Volumes) -> pb.Operation:
    listed = entries(of, "reserve", "resources")
    resources = resources_to_wire(resources_from_json(listed))
    _check_roles("RESERVE", listed, offers)
    hold = pb.Hold(hold_id=f"mesos-{token_hex(8)}", resources=resources, for_role=True)
    return pb.Operation(hold=hold)


def _unreserve(of: Json, offers: list[Offer], _: Volumes) -> pb.Operation:
    named = resources_from_json(entries(of, "unreserve", "resources"))
    held = [offer for offer in offers if offer.hold_id]
    if not held or named != sum_of(offer.resources for offer in held):
        raise InvalidRequest("UNRESERVE must name all reserved resources of its offers")
    return pb.Operation(release=pb.Release(hold_ids=[offer.hold_id for offer in held]))


def _create(of: Json, offers: list[Offer], volumes: Volumes) -> pb.Operation:
    resource = _only_volume(of, "create")
    if not _reservations(resource):
        raise InvalidRequest("Persistent volumes cannot be created from unreserved resources")
    _check_roles("CREATE", [resource], offers)
    if not offers:
        raise InvalidRequest("Invalid offers: they have ended")
    made = add_volume(resource, offers[0], volumes)
    size = resources_to_wire(made.resources)
    hold = pb.Hold(hold_id=made.hold_id, resources=size, for_role=True, volume=True)
    return pb.Operation(hold=hold)


def _destroy(of: Json, _: list[Offer], volumes: Volumes) -> pb.Operation:
    ended = named_volume(_only_volume(of, "destroy"), volumes)
    return pb.Operation(release=pb.Release(hold_ids=[ended.hold_id]))


def _only_volume(of: Json, field: str) -> Json:
    listed = entries(of, field, "volumes")
    if len(listed) != 1 or not is_volume(listed[0]):
        raise InvalidRequest("an operation must have one persistent volume; use several")
    return listed[0]


# Each is made of its JSON, the offers of its ACCEPT, and the volumes that its tasks may name, to
# which CREATE adds; raises InvalidRequest if it is malformed, or for resources of others.
OPERATIONS: Final[Mapping[str, Callable[[Json, list[Offer], Volumes], pb.Operation]]] = {
    "RESERVE": _reserve,
    "UNRESERVE": _unreserve,
    "CREATE": _create,
    "DESTROY": _destroy,
}


def _check_roles(kind: str, listed: list[Json], offers: list[Offer]) -> None:
    named = {text(each, "role") for resource in listed for each in _reservations(resource)}
    if offers and (others := sorted(named - {offer.role for offer in offers})):
        raise InvalidRequest(f"{kind} for role {others[0][:80]!r}: its offers are of another")


def _reservations(resource: Json) -> list[Json]:
    """Return what names the roles of a resource; in the older format, the resource itself."""
    if "reservations" in resource:
        return entries(resource, "reservations")
    return [resource] if text(resource, "role", "*") != "*" else []
