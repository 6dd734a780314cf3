"""Resources, attributes and constraints over the wire and back."""

from __future__ import annotations

import pytest

from croupier.model.attributes import Constraint, Operator, parse_attributes
from croupier.model.errors import InvalidRequest
from croupier.model.ranges import MAX_NUMBER
from croupier.model.resources import NOTHING, Resources
from croupier.model.scalar import MAX_MILLI
from croupier.v1 import resources_pb2 as pb
from croupier.wire.resources import (
    attributes_from_wire,
    attributes_to_wire,
    constraint_from_wire,
    constraint_to_wire,
    resources_from_wire,
    resources_to_wire,
)


def test_zero_amounts_are_an_empty_message() -> None:
    assert resources_to_wire(NOTHING) == pb.Resources()
    assert resources_from_wire(pb.Resources()) == NOTHING


def test_the_same_amount_is_the_same_bytes() -> None:
    one, other = Resources.parse("zones:{a,b,c,d,e}"), Resources.parse("zones:{e,d,c,b,a}")
    assert resources_to_wire(one) == resources_to_wire(other)


def ranges(*pairs: tuple[int, int], name: str = "ports") -> pb.NamedRanges:
    return pb.NamedRanges(name=name, ranges=[pb.Range(begin=b, end=e) for b, e in pairs])


@pytest.mark.parametrize(
    "wire",
    [
        pb.Resources(cpus_milli=-1),
        pb.Resources(mem_milli=MAX_MILLI + 1),
        pb.Resources(scalars=[pb.NamedScalar(name="cpus", milli=1)]),
        pb.Resources(scalars=[pb.NamedScalar(name="x", milli=1)] * 2),
        pb.Resources(scalars=[pb.NamedScalar(name="x", milli=-1)]),
        pb.Resources(scalars=[pb.NamedScalar(name="../x", milli=1)]),
        pb.Resources(scalars=[pb.NamedScalar(name="", milli=1)]),
        pb.Resources(scalars=[pb.NamedScalar(name=f"r{i}", milli=1) for i in range(65)]),
        pb.Resources(ranges=[ranges((1, 3), (3, 4))]),
        pb.Resources(ranges=[ranges((3, 1))]),
        pb.Resources(ranges=[ranges((0, MAX_NUMBER + 1))]),
        pb.Resources(ranges=[ranges((1, 1)), ranges((2, 2))]),
        pb.Resources(ranges=[ranges((1, 1), name="cpus")], cpus_milli=1),
        pb.Resources(sets=[pb.NamedSet(name="z", items=["a", "a"])]),
        pb.Resources(sets=[pb.NamedSet(name="z", items=["a"])] * 2),
        pb.Resources(sets=[pb.NamedSet(name="z", items=[""])]),
        pb.Resources(sets=[pb.NamedSet(name="z", items=["a;cpus:9"])]),
        pb.Resources(sets=[pb.NamedSet(name="z", items=["a"])], ranges=[ranges((1, 1), name="z")]),
    ],
)
def test_malformed_amounts_are_refused(wire: pb.Resources) -> None:
    with pytest.raises(InvalidRequest):
        resources_from_wire(wire)


def test_attributes_survive_the_wire() -> None:
    attributes = parse_attributes("rack:r1;cores:8;slots:[1-4,9]")
    assert attributes_from_wire(attributes_to_wire(attributes)) == attributes


@pytest.mark.parametrize(
    "wire",
    [
        [pb.Attribute(name="a")],
        [pb.Attribute(name="1", text="x")],
        [pb.Attribute(name="a", text="x")] * 2,
        [pb.Attribute(name="a", text="x" * 1025)],
        [pb.Attribute(name="a", scalar_milli=-1)],
        [pb.Attribute(name="a", ranges=ranges((2, 1)))],
    ],
)
def test_malformed_attributes_are_refused(wire: list[pb.Attribute]) -> None:
    with pytest.raises(InvalidRequest):
        attributes_from_wire(wire)


@pytest.mark.parametrize("operator", list(Operator))
def test_constraints_survive_the_wire(operator: Operator) -> None:
    constraint = Constraint("rack", operator, "r1")
    assert constraint_from_wire(constraint_to_wire(constraint)) == constraint


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="unknown operator"):
        constraint_from_wire(pb.Constraint(attribute="rack"))
