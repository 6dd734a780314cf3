"""Placement of new instances: the offer and the ports of each.

Spread over an attribute: a value is avoided while another one has fewer instances. Values are
learned from offers. For `spread_wait_s`, a slot also waits for values that were never offered; for
as long again, for an even spread over the known values; after that it takes any offer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from croupier.apps.service.core.instance import Instance, Slot
from croupier.apps.service.core.state import Service
from croupier.model import ranges as rng
from croupier.model.resources import Resources

# Waits for unknown values, and a value without offers, are remembered for this long.
EXPLORED_S: Final = 300.0
KNOWN_S: Final = 3600.0
PORTS: Final = "ports"


@dataclass(slots=True)
class Room:
    """The rest of one offer.

    Attributes:
        place: the agent's value of the spread attribute; its id if there is none to spread over.
    """

    offer_id: str
    agent_id: str
    host: str
    place: str
    left: Resources
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of one instance of a version.

    Attributes:
        unit: resources without ports.
        ports: number of ports.
        features: what its agent must be able to enforce.
    """

    unit: Resources
    ports: int = 0
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Placed:
    """A new instance on an offer."""

    offer_id: str
    instance: Instance
    resources: Resources


def place(
    service: Service, rooms: Iterable[Room], needs: dict[int, Needs], now: float
) -> list[Placed]:
    """Record instances for the slots that want one, as far as the offers have room.

    The instances are in the state from now on: make it durable before they are launched.
    """
    free = list(rooms)
    if service.rules.spread:
        service.known_places.update({room.place: now for room in free})
    placed: list[Placed] = []
    counts = place_counts(service)
    for slot in list(service.launches_due(now)):
        wanted = needs.get(slot.version)
        if wanted is None:
            continue
        avoided = avoided_places(service, slot, counts, now)
        fitting = [r for r in free if r.place not in avoided and _fits(wanted, r)]
        if not fitting:
            continue
        room = min(fitting, key=lambda r: (counts.get(r.place, 0), r.agent_id, r.offer_id))
        placed.append(_launch(service, slot, room, wanted, now))
        counts[room.place] = counts.get(room.place, 0) + 1
    return placed


def avoided_places(
    service: Service, slot: Slot, counts: Mapping[str, int], now: float
) -> frozenset[str]:
    """Return the values of the spread attribute that a slot should not take now.

    `counts` are the instances at each value.
    """
    if not service.rules.spread:
        return frozenset()
    waited = 0.0 if slot.wanted_since is None else now - slot.wanted_since
    wait_s = service.rules.spread_wait_s
    if waited >= wait_s and now >= service.explored_until:
        service.explored_until = now + EXPLORED_S
    known = {p: counts.get(p, 0) for p, at in service.known_places.items() if now - at < KNOWN_S}
    known.update(counts)
    if now >= service.explored_until:
        least = 0
    elif waited < 2 * wait_s:
        least = min(known.values(), default=0)
    else:
        return frozenset()
    return frozenset(place for place, count in known.items() if count > least)


def place_counts(service: Service) -> dict[str, int]:
    """Return the number of instances at each place, without those that end."""
    counts: dict[str, int] = {}
    for instance in service.instances.values():
        if instance.is_stopping or not instance.host:
            continue
        counts[instance.place] = counts.get(instance.place, 0) + 1
    return counts


def _fits(needs: Needs, room: Room) -> bool:
    free_ports = rng.count(room.left.ranges.get(PORTS, ()))
    return needs.unit <= room.left and needs.ports <= free_ports and needs.features <= room.features


def _launch(service: Service, slot: Slot, room: Room, needs: Needs, now: float) -> Placed:
    taken = rng.lowest(room.left.ranges.get(PORTS, ()), needs.ports)
    ports = tuple(port for begin, end in taken for port in range(begin, end + 1))
    resources = needs.unit + Resources(ranges={PORTS: taken}) if taken else needs.unit
    room.left -= resources
    number, service.next_task = service.next_task, service.next_task + 1
    instance = Instance(
        f"{service.name}-{slot.index}-v{slot.version}-{service.token}{number}",
        slot.index,
        slot.version,
        now,
        room.agent_id,
        room.host,
        ports,
        room.place,
    )
    service.add(instance)
    slot.wanted_since = None
    return Placed(room.offer_id, instance, resources)
