"""Resources and attributes, to and from the JSON of Mesos."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import Any, Final

from croupier.mesos import fields
from croupier.mesos.fields import Json, entries, entry, integer, number, text
from croupier.model.attributes import Attributes
from croupier.model.errors import InvalidRequest
from croupier.model.ranges import MAX_RANGES, Ranges
from croupier.model.resources import MAX_ITEMS, MAX_NAMES, Resources, in_order
from croupier.model.scalar import check_milli
from croupier.wire.resources import check_count

# Entries of one list of resources; the entries of one name are added up.
MAX_ENTRIES: Final = 4 * MAX_NAMES
_REFUSED: Final = {
    "revocable": "revocable resources are not supported",
    "shared": "shared resources are not supported",
    "provider_id": "resource providers are not supported",
}


def resources_to_json(amount: Resources, more: Mapping[str, Any]) -> list[Json]:
    """Return the resources of an offer or a task; each entry has the fields `more`."""
    found = [fields.made_scalar(name, amount.scalars[name]) for name in in_order(amount.scalars)]
    found += [_ranges(name, ranges) for name, ranges in amount.ranges.items()]
    found += [
        {"name": name, "type": "SET", "set": {"item": sorted(items)}}
        for name, items in amount.sets.items()
    ]
    for each in found:
        each.update(more)
    return found


def resources_from_json(listed: list[Json]) -> Resources:
    """Return the sum of a list of resources, whatever roles they are of.

    Raises:
        InvalidRequest: if an entry is malformed, or asks for what is not supported.
    """
    check_count(len(listed), MAX_ENTRIES, "resources")
    scalars: dict[str, int] = {}
    ranges: dict[str, Ranges] = {}
    sets: dict[str, frozenset[str]] = {}
    for each in listed:
        name = text(each, "name")[:80]
        _check_supported(name, each)
        match text(each, "type"):
            case "SCALAR":
                amount = check_milli(
                    name, fields.milli(number(entry(each, "scalar"), "value", nan))
                )
                scalars[name] = scalars.get(name, 0) + amount
            case "RANGES":
                pairs = entries(each, "ranges", "range")
                check_count(len(pairs), MAX_RANGES, f"ranges of {name}")
                found = ((integer(pair, "begin", -1), integer(pair, "end", -1)) for pair in pairs)
                ranges[name] = (*ranges.get(name, ()), *found)
            case "SET":
                items = fields.texts(entry(each, "set"), "item")
                check_count(len(items), MAX_ITEMS, f"items of {name}")
                sets[name] = sets.get(name, frozenset()) | set(items)
            case other:
                raise InvalidRequest(f"resource {name!r} is of the unknown type {other[:80]!r}")
    return Resources(scalars, ranges, sets)


def is_volume(resource: Json) -> bool:
    """Return whether a resource is a persistent volume."""
    return entry(resource, "disk").get("persistence") is not None


def attributes_to_json(attributes: Attributes) -> list[Json]:
    """Return the attributes of an agent."""
    found: list[Json] = []
    for name, value in attributes.items():
        if isinstance(value, str):
            found.append({"name": name, "type": "TEXT", "text": {"value": value}})
        elif isinstance(value, int):
            found.append(fields.made_scalar(name, value))
        else:
            found.append(_ranges(name, value))
    return found


def _check_supported(name: str, each: Json) -> None:
    for field, why in _REFUSED.items():
        if each.get(field) is not None:
            raise InvalidRequest(f"resource {name!r}: {why}")
    if is_volume(each):
        raise InvalidRequest(
            f"resource {name!r}: a persistent volume is named by tasks and DESTROY only"
        )


def _ranges(name: str, ranges: Ranges) -> Json:
    listed = [{"begin": begin, "end": end} for begin, end in ranges]
    return {"name": name, "type": "RANGES", "ranges": {"range": listed}}
