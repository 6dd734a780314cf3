"""Parts that several views share: amounts, shares, labels, demands.

An amount is given as text and in whole thousandths (of a MiB for mem and disk).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from croupier.model.resources import Resources
from croupier.model.roles import format_amounts
from croupier.v1 import framework_pb2, resources_pb2, task_pb2
from croupier.wire.resources import constraint_from_wire, resources_from_wire

View = dict[str, Any]

_PPM = 1_000_000


def amount_view(wire: resources_pb2.Resources) -> View:
    """Return an amount of resources."""
    amount: Resources = resources_from_wire(wire)
    return {
        "text": str(amount),
        "milli": dict(amount.scalars),
        "ranges": {name: [list(pair) for pair in pairs] for name, pairs in amount.ranges.items()},
        "sets": {name: sorted(items) for name, items in amount.sets.items()},
    }


def scalars_view(amounts: Mapping[str, int]) -> View:
    """Return scalar amounts, such as limits, and keep zeros."""
    return {"text": format_amounts(amounts), "milli": dict(amounts)}


def shares_view(wire: Any) -> View:
    """Return the dominant share and the entitlement of a framework or role."""
    return {
        "share": wire.share_ppm / _PPM,
        "share_ppm": wire.share_ppm,
        "entitlement": wire.entitlement_ppm / _PPM,
        "entitlement_ppm": wire.entitlement_ppm,
    }


def labels_view(labels: Iterable[task_pb2.Label]) -> list[View]:
    """Return labels in their order."""
    return [{"key": label.key, "value": label.value} for label in labels]


def demand_view(demand: framework_pb2.Demand) -> View:
    """Return a demand. `count` None is unlimited; `role` None is the framework's first."""
    return {
        "unit": amount_view(demand.unit),
        "count": demand.count if demand.HasField("count") else None,
        "constraints": [str(constraint_from_wire(wire)) for wire in demand.constraints],
        "min_per_offer": demand.min_per_offer if demand.HasField("min_per_offer") else 1,
        "max_per_offer": demand.max_per_offer if demand.HasField("max_per_offer") else None,
        "role": demand.role or None,
    }


def demand_text(demand: View) -> str:
    """Return a demand as text, such as `3 <cpus:1>`."""
    count = "any number of" if demand["count"] is None else demand["count"]
    least, most = demand["min_per_offer"], demand["max_per_offer"]
    portions = "" if (least, most) == (1, None) else f" {least} to {most or 'any'} at once"
    place = f" in {demand['role']}" if demand["role"] else ""
    tests = "".join(f" {constraint}" for constraint in demand["constraints"])
    return f"{count} <{demand['unit']['text']}>{portions}{place}{tests}"


def many(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 task` or `2 tasks`."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def seconds(wire: Any, field: str) -> float | None:
    """Return an optional field of milliseconds in seconds; None if it is absent."""
    return getattr(wire, field) / 1000 if wire.HasField(field) else None
