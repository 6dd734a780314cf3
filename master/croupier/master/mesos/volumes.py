"""Persistent volumes of Mesos: volumes of a role, by their persistence ids.

Rule: the id of such a hold names the persistence id and the path that it was created with, so that
offers list the volume also under a later master.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from secrets import token_hex
from typing import Any
from urllib.parse import quote, unquote

from croupier.master.core.agents import Agent
from croupier.master.core.holds import Hold
from croupier.master.core.offers import Offer
from croupier.master.mesos.amounts import resources_from_json, resources_to_json
from croupier.mesos.fields import Json, entry, text
from croupier.model.errors import InvalidRequest
from croupier.model.ids import NO_FRAMEWORK, HoldId, Role, check_id
from croupier.model.roles import ancestors

# Those that tasks in a role may use.
Volumes = dict[str, Hold]

_parts_of = re.compile(r"persistent:[0-9a-f]{16}:([^:]+):(.+)").fullmatch


def volumes_on(agent: Agent | None, role: Role) -> Volumes:
    """Return the volumes of an agent that tasks in a role may use. O(its holds)."""
    found: Volumes = {}
    # One of the role itself takes the place of one of the same id of a role above.
    for owner in (*reversed(ancestors(role)), role):
        for hold in () if agent is None else agent.holds.values():
            parts = _parts_of(hold.hold_id) if hold.volume else None
            if parts is not None and hold.owner == (NO_FRAMEWORK, owner):
                found[unquote(parts[1])] = hold
    return found


def volume_to_json(hold: Hold, more: Mapping[str, Any]) -> list[Json]:
    """Return a volume as a resource of an offer, with the fields `more`."""
    parts = _parts_of(hold.hold_id)
    assert parts is not None
    volume = {"container_path": parts[2], "mode": "RW"}
    disk = {"persistence": {"id": unquote(parts[1])}, "volume": volume}
    return resources_to_json(hold.resources, {**more, "disk": disk})


def add_volume(resource: Json, offer: Offer, volumes: Volumes) -> Hold:
    """Add the volume that a CREATE describes; raises InvalidRequest if it has no form here."""
    disk, volume = entry(resource, "disk"), entry(resource, "disk", "volume")
    persistence_id = check_id("persistence", text(entry(disk, "persistence"), "id"))
    path = check_id("container_path", text(volume, "container_path"))
    if persistence_id in volumes:
        raise InvalidRequest(f"Persistence ID {persistence_id!r} already exists")
    if text(volume, "mode", "RW") != "RW":
        raise InvalidRequest("Read-only persistent volume not supported")
    if volume.get("host_path") is not None or disk.get("source") is not None:
        raise InvalidRequest("host paths and disk sources of volumes are not supported")
    hold_id = HoldId(f"persistent:{token_hex(8)}:{quote(persistence_id, safe='')}:{path}")
    size = resources_from_json([{**resource, "disk": None}])
    made = Hold(hold_id, offer.agent_id, offer.role, NO_FRAMEWORK, size, volume=True)
    volumes[persistence_id] = made
    return made


def named_volume(resource: Json, volumes: Volumes) -> Hold:
    """Return the volume that a resource names; raises InvalidRequest if it is none of these."""
    persistence_id = text(entry(resource, "disk", "persistence"), "id")
    found = volumes.get(persistence_id)
    if found is None or resources_from_json([{**resource, "disk": None}]) != found.resources:
        raise InvalidRequest(
            f"there is no persistent volume {persistence_id[:80]!r} of this size for its role"
        )
    return found
