"""Resources, attributes and constraints to and from the wire.

Rule: a message that is malformed, or has too much of anything, is an `InvalidRequest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from croupier.model.attributes import (
    MAX_ATTRIBUTES,
    MAX_TEXT,
    Attributes,
    AttributeValue,
    Constraint,
    Operator,
    check_attribute_name,
)
from croupier.model.devices import MAX_DEVICES, MAX_GROUPS, Device
from croupier.model.errors import InvalidRequest
from croupier.model.ranges import MAX_RANGES, Ranges, make_ranges
from croupier.model.resources import FIRST, MAX_ITEMS, MAX_NAMES, Resources
from croupier.model.scalar import check_milli
from croupier.v1 import resources_pb2 as pb

T = TypeVar("T")
_OPERATORS = {pb.Constraint.Operator.Value(f"OPERATOR_{each.name}"): each for each in Operator}
_INT64_MAX = 2**63 - 1
_OPERATORS_OUT = {operator: number for number, operator in _OPERATORS.items()}


def check_count(number: int, most: int, what: str) -> None:
    """Check that a repeated field of `number` entries has at most `most`. O(1).

    It comes before any entry is read. An empty entry takes two bytes on the wire and some
    microseconds to convert, so a message of legal size could block the loop for seconds. Raises
    InvalidRequest if it has more; the message calls them `what`.
    """
    if number > most:
        raise InvalidRequest(f"more than {most} {what}")


def resources_to_wire(amount: Resources) -> pb.Resources:
    """Return the message for `amount`."""
    # Only sums over very many agents exceed an int64.
    scalars = {name: min(milli, _INT64_MAX) for name, milli in amount.scalars.items()}
    wire = pb.Resources(
        cpus_milli=scalars.get("cpus", 0),
        mem_milli=scalars.get("mem", 0),
        disk_milli=scalars.get("disk", 0),
        gpus_milli=scalars.get("gpus", 0),
    )
    for name, milli in scalars.items():
        if name not in FIRST:
            wire.scalars.add(name=name, milli=milli)
    for name, ranges in amount.ranges.items():
        wire.ranges.append(_ranges_to_wire(name, ranges))
    for name, items in amount.sets.items():
        wire.sets.add(name=name, items=sorted(items))
    return wire


def resources_from_wire(wire: pb.Resources) -> Resources:
    """Return the amount in `wire`."""
    check_count(len(wire.scalars), MAX_NAMES, "scalar resources")
    check_count(len(wire.ranges), MAX_NAMES, "resources of ranges")
    check_count(len(wire.sets), MAX_NAMES, "resources of items")
    scalars = {
        "cpus": wire.cpus_milli,
        "mem": wire.mem_milli,
        "disk": wire.disk_milli,
        "gpus": wire.gpus_milli,
    }
    by_name(((scalar.name, scalar.milli) for scalar in wire.scalars), scalars)
    ranges = by_name((named.name, _ranges_from_wire(named)) for named in wire.ranges)
    sets = by_name((named.name, _items_from_wire(named)) for named in wire.sets)
    return Resources(scalars, ranges, sets)


def devices_to_wire(devices: Iterable[Device]) -> list[pb.Device]:
    """Return the messages for named devices, in order."""
    return [
        pb.Device(
            device_id=device.device_id,
            kind=device.kind,
            type=device.type,
            memory_mib=device.memory_mib,
            groups=[pb.DeviceGroup(topology=key, name=name) for key, name in device.groups],
            slots=device.slots,
        )
        for device in devices
    ]


def devices_from_wire(wire: Sequence[pb.Device]) -> tuple[Device, ...]:
    """Return the named devices in `wire`; their values are not checked here."""
    check_count(len(wire), MAX_DEVICES, "devices")
    return tuple(map(_device_from_wire, wire))


def _device_from_wire(wire: pb.Device) -> Device:
    check_count(len(wire.groups), MAX_GROUPS, "groups of a device")
    groups = by_name((each.topology, each.name) for each in wire.groups)
    return Device(
        wire.device_id, wire.kind, wire.type, wire.memory_mib, tuple(groups.items()), wire.slots
    )


def attributes_to_wire(attributes: Attributes) -> list[pb.Attribute]:
    """Return the messages for `attributes`, in order."""
    return [_attribute_to_wire(name, value) for name, value in attributes.items()]


def attributes_from_wire(wire: Sequence[pb.Attribute]) -> dict[str, AttributeValue]:
    """Return the attributes in `wire`."""
    check_count(len(wire), MAX_ATTRIBUTES, "attributes")
    return by_name((check_attribute_name(each.name), _attribute_from_wire(each)) for each in wire)


def constraint_to_wire(constraint: Constraint) -> pb.Constraint:
    """Return the message for `constraint`."""
    return pb.Constraint(
        attribute=constraint.attribute,
        operator=_OPERATORS_OUT[constraint.operator],
        value=constraint.value,
    )


def constraint_from_wire(wire: pb.Constraint) -> Constraint:
    """Return the constraint in `wire`."""
    if wire.operator not in _OPERATORS:
        raise InvalidRequest(
            f"constraint on {wire.attribute[:80]!r}: unknown operator {wire.operator}"
        )
    return Constraint(wire.attribute, _OPERATORS[wire.operator], wire.value)


def _attribute_to_wire(name: str, value: AttributeValue) -> pb.Attribute:
    if isinstance(value, str):
        return pb.Attribute(name=name, text=value)
    if isinstance(value, int):
        return pb.Attribute(name=name, scalar_milli=value)
    return pb.Attribute(name=name, ranges=_ranges_to_wire(name, value))


def _attribute_from_wire(wire: pb.Attribute) -> AttributeValue:
    match wire.WhichOneof("value"):
        case "text":
            if len(wire.text) > MAX_TEXT:
                raise InvalidRequest(f"attribute {wire.name}: text is too long")
            return wire.text
        case "scalar_milli":
            return check_milli(wire.name, wire.scalar_milli)
        case "ranges":
            return _ranges_from_wire(wire.ranges)
        case _:
            raise InvalidRequest(f"attribute {wire.name} has no value")


def _ranges_to_wire(name: str, ranges: Ranges) -> pb.NamedRanges:
    return pb.NamedRanges(name=name, ranges=[pb.Range(begin=b, end=e) for b, e in ranges])


def _ranges_from_wire(wire: pb.NamedRanges) -> Ranges:
    check_count(len(wire.ranges), MAX_RANGES, "ranges")
    return make_ranges((r.begin, r.end) for r in wire.ranges)


def _items_from_wire(wire: pb.NamedSet) -> frozenset[str]:
    check_count(len(wire.items), MAX_ITEMS, "items")
    items = frozenset(wire.items)
    if len(items) < len(wire.items):
        raise InvalidRequest(f"{wire.name}: an item is given twice")
    return items


def by_name(pairs: Iterable[tuple[str, T]], named: dict[str, T] | None = None) -> dict[str, T]:
    """Add `pairs` to `named`, or to a new one; raises InvalidRequest if a name is given twice."""
    named = {} if named is None else named
    for name, value in pairs:
        if name in named:
            raise InvalidRequest(f"{name[:80]} is given twice")
        named[name] = value
    return named
