"""Parts that several objects share: amounts, labels, demands.

An amount is given as text and in whole thousandths (of a MiB for mem and disk).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from croupier.api.objects import as_object, makes
from croupier.model.resources import Resources
from croupier.model.roles import format_amounts
from croupier.v1 import framework_pb2, resources_pb2
from croupier.wire.resources import constraint_from_wire, resources_from_wire


class ScalarAmounts(TypedDict):
    """Scalar amounts, such as a limit.

    Attributes:
        text: for people, such as `cpus:1.5;mem:512MB`.
        milli: thousandths by resource, of a MiB for mem and disk.
    """

    text: str
    milli: dict[str, int]


class Amount(ScalarAmounts):
    """An amount of resources.

    Attributes:
        text: for people, such as `cpus:1.5;mem:512MB;ports:[80-81]`.
        milli: thousandths by resource, of a MiB for mem and disk.
        ranges: pairs of first and last number by resource, such as ports.
        sets: items by resource.
    """

    ranges: dict[str, list[list[int]]]
    sets: dict[str, list[str]]


class Label(TypedDict):
    """A label of a framework or task."""

    key: str
    value: str


class Demand(TypedDict):
    """Tasks of one kind that a framework wants to run.

    Attributes:
        count: None is any number.
        max_per_offer: None is any number.
        role: None is the framework's first.
    """

    unit: Amount
    count: int | None
    constraints: list[str]
    min_per_offer: int
    max_per_offer: int | None
    role: str | None


@makes(Amount)
def amount_view(wire: resources_pb2.Resources) -> Amount:
    """Return an amount of resources."""
    amount: Resources = resources_from_wire(wire)
    return {
        "text": str(amount),
        "milli": dict(amount.scalars),
        "ranges": {name: [list(pair) for pair in pairs] for name, pairs in amount.ranges.items()},
        "sets": {name: sorted(items) for name, items in amount.sets.items()},
    }


def scalars_view(amounts: Mapping[str, int]) -> ScalarAmounts:
    """Return scalar amounts, such as limits, and keep zeros."""
    return {"text": format_amounts(amounts), "milli": dict(amounts)}


@makes(Demand)
def demand_view(demand: framework_pb2.Demand) -> Demand:
    """Return a demand."""
    return as_object(
        Demand,
        demand,
        constraints=[str(constraint_from_wire(wire)) for wire in demand.constraints],
        min_per_offer=demand.min_per_offer if demand.HasField("min_per_offer") else 1,
    )
