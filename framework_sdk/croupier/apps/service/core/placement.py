"""Placement of new instances: the offer and the ports of each.

Spread over an attribute: a value is avoided while another one has fewer instances. Values are
learned from offers. For `spread_wait_s`, a slot also waits for values that were never offered; for
as long again, for an even spread over the known values; after that it takes any offer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from croupier.apps.job_file.task_spec import TaskSpec
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
    """The rest of one offer; `place` is its value to spread over, or its agent if there is none."""

    offer_id: str
    agent_id: str
    host: str
    place: str
    left: Resources
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Template:
    """The task of each instance of a version.

    Attributes:
        spec: its resources are without ports.
        ports: the number of its ports.
        features: what its agent must be able to enforce.
    """

    spec: TaskSpec
    ports: int = 0
    features: frozenset[str] = frozenset()


# New instances on an offer, with the resources of their own tasks.
Placed = list[tuple[Instance, Resources]]


def place(
    service: Service, rooms: Iterable[Room], templates: Mapping[int, Template], now: float
) -> dict[str, Placed]:
    """Record instances for the slots that want one, as far as the offers have room.

    `templates` are those of versions. The result is by offer. The instances are in the state from
    now on: make it durable before they are launched.
    """
    free = list(rooms)
    if service.rules.spread:
        service.known_places.update({room.place: now for room in free})
    placed: dict[str, Placed] = {}
    counts = place_counts(service)
    for slot in list(service.launches_due(now)):
        wanted = templates.get(slot.version)
        if wanted is None:
            continue
        avoided = avoided_places(service, slot, counts, now)
        fitting = [r for r in free if r.place not in avoided and _fits(wanted, r)]
        if not fitting:
            continue
        room = min(fitting, key=lambda r: (counts[r.place], r.agent_id, r.offer_id))
        placed.setdefault(room.offer_id, []).append(_launch(service, slot, room, wanted, now))
        counts[room.place] += 1
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


def place_counts(service: Service) -> Counter[str]:
    """Return the number of instances at each place, without those that end."""
    instances = service.instances.values()
    return Counter(each.place for each in instances if each.host and not each.is_stopping)


def _fits(template: Template, room: Room) -> bool:
    has_ports = template.ports <= rng.count(room.left.ranges.get(PORTS, ()))
    has_room = template.spec.total <= room.left
    return has_room and has_ports and template.features <= room.features


def _launch(
    service: Service, slot: Slot, room: Room, template: Template, now: float
) -> tuple[Instance, Resources]:
    taken = rng.lowest(room.left.ranges.get(PORTS, ()), template.ports)
    ports = tuple(port for begin, end in taken for port in range(begin, end + 1))
    resources = template.spec.resources
    if taken:
        resources += Resources(ranges={PORTS: taken})
    room.left -= template.spec.total - template.spec.resources + resources
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
    return instance, resources
