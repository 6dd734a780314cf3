"""Demand: shapes of scalars, each with a count, constraints, a role and units per offer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from croupier.model.attributes import Constraint, check_constraints, equals, exists, matches
from croupier.model.demand import (
    MAX_COUNT,
    MAX_PER_OFFER,
    MAX_PROGRAMS,
    MAX_SHAPES,
    Demand,
    check_demands,
)
from croupier.model.errors import InvalidRequest
from croupier.model.ids import Role
from croupier.model.resources import NOTHING, Resources

UNIT = Resources.parse("cpus:1;ports:2")


@pytest.mark.parametrize("count", [None, 0, 1, MAX_COUNT])
def test_a_demand_of_scalars_is_legal(count: int | None) -> None:
    Demand(UNIT, count, (equals("rack", "r1"),)).check()


@pytest.mark.parametrize("unit", [NOTHING, Resources.parse("cpus:1;ports:[1-2]"),
                                  Resources.parse("zones:{a}")])  # fmt: skip
def test_a_unit_is_made_of_scalars(unit: Resources) -> None:
    with pytest.raises(InvalidRequest, match="made of scalars"):
        Demand(unit).check()


@pytest.mark.parametrize("count", [-1, MAX_COUNT + 1])
def test_a_count_is_bounded(count: int) -> None:
    with pytest.raises(InvalidRequest, match="count"):
        Demand(UNIT, count).check()


def test_constraints_are_bounded() -> None:
    with pytest.raises(InvalidRequest, match="constraints"):
        Demand(UNIT, None, (equals("a", "b"),) * 101).check()


@pytest.mark.parametrize(
    ("least", "most"), [(1, None), (1, 1), (2, 2), (2, 8), (MAX_PER_OFFER, MAX_PER_OFFER)]
)
def test_units_per_offer_are_legal(least: int, most: int | None) -> None:
    Demand(UNIT, None, (), least, most).check()


@pytest.mark.parametrize(
    ("least", "most"),
    [
        (0, None), (-1, None), (MAX_PER_OFFER + 1, None), (1, 0), (1, -1), (3, 2),
        (1, MAX_PER_OFFER + 1),
    ],
)  # fmt: skip
def test_units_per_offer_are_bounded(least: int, most: int | None) -> None:
    with pytest.raises(InvalidRequest, match="units per offer"):
        Demand(UNIT, None, (), least, most).check()


def test_a_demand_has_a_readable_text_form() -> None:
    assert str(Demand(UNIT)) == "any number of <cpus:1;ports:2>"
    assert str(Demand(UNIT, 3, (equals("a", "b"),))) == "3 <cpus:1;ports:2>, a equals b"
    assert str(Demand(UNIT, 3, (), 2)) == "3 <cpus:1;ports:2>, at least 2 at once"
    assert (
        str(Demand(UNIT, 8, (matches("a", "b.*"),), 2, 4, Role("ads/prod")))
        == "8 <cpus:1;ports:2>, 2 to 4 at once, in role ads/prod, a matches b.*"
    )


ADS, WEB = Role("ads"), Role("web")


def shape(cpus: int, role: Role | None = None, *constraints: Constraint) -> Demand:
    return Demand(Resources({"cpus": 1000 * cpus}), None, constraints, role=role)


def test_several_shapes_are_legal() -> None:
    several = [
        shape(1),
        shape(2),
        shape(1, WEB),
        shape(1, WEB, equals("rack", "r1")),
        shape(1, None, exists("gpu")),
    ]
    assert check_demands(several, [ADS, WEB]) == tuple(several)
    assert check_demands([], [ADS]) == ()
    assert check_demands([shape(1, Role("any"))]) == (shape(1, Role("any")),)


@pytest.mark.parametrize(
    "twice",
    [
        [shape(1), shape(2), shape(1)],
        [shape(1), shape(1, ADS)],
        [shape(1, WEB), Demand(Resources({"cpus": 1000}), 7, (), 2, 3, WEB)],
        [
            shape(1, None, equals("a", "b"), exists("c")),
            shape(1, ADS, exists("c"), equals("a", "b")),
        ],
    ],
)
def test_a_shape_is_not_demanded_twice(twice: list[Demand]) -> None:
    with pytest.raises(InvalidRequest, match="twice"):
        check_demands(twice, [ADS, WEB])


def test_a_demand_names_a_role_of_its_framework() -> None:
    with pytest.raises(InvalidRequest, match="'web', which the framework does not have"):
        check_demands([shape(1), shape(2, WEB)], [ADS])


@pytest.mark.parametrize("role", ["a/../b", "a//b", "/a", "a/", "-x", "", "x" * 2**20])
def test_a_demand_for_an_illegal_role_is_refused(role: str) -> None:
    with pytest.raises(InvalidRequest, match="role"):
        shape(1, Role(role)).check()


def test_every_shape_is_checked() -> None:
    with pytest.raises(InvalidRequest, match="units per offer"):
        check_demands([shape(1), Demand(UNIT, min_per_offer=0)], [ADS])


def test_the_number_of_shapes_is_bounded() -> None:
    assert len(check_demands(map(shape, range(1, MAX_SHAPES + 1)))) == MAX_SHAPES
    made = 0

    def many() -> Iterator[Demand]:
        nonlocal made
        for cpus in range(1, 10_000):
            made += 1
            yield shape(cpus)

    with pytest.raises(InvalidRequest, match="more than 64 demands"):
        check_demands(many())
    assert made == MAX_SHAPES + 1


def test_patterns_are_bounded_together() -> None:
    costly = [matches("a", f"(.*{letter}){{60}}") for letter in "bcdefghijklmnop"]
    assert all(each.pattern and each.pattern.size < MAX_PROGRAMS / 15 for each in costly)
    with pytest.raises(InvalidRequest, match="too complex together"):
        check_demands(shape(cpus, None, *costly) for cpus in range(1, 9))


def test_reading_stops_at_the_first_excess_constraint() -> None:
    made = 0

    def many() -> Iterator[Constraint]:
        nonlocal made
        for number in range(10_000):
            made += 1
            yield matches("hostname", f"h{number}.*")

    with pytest.raises(InvalidRequest, match="more than 100 constraints"):
        check_constraints(many())
    assert made == 101


@pytest.mark.parametrize("unit", ["mem:0.001", "cpus:0.009;mem:31.999", "gpus:0.009", "disk:1"])
def test_tiny_units_are_refused(unit: str) -> None:
    tiny = Demand(Resources.parse(unit))
    with pytest.raises(InvalidRequest, match="too small: it needs at least"):
        tiny.check()
    # A minimum per offer makes them legal.
    replace(tiny, min_per_offer=1_000_000).check()


@pytest.mark.parametrize(
    "unit", ["cpus:0.01", "mem:32", "disk:32", "ports:1", "cpus:0.001;mem:1GB"]
)
def test_small_units_are_accepted(unit: str) -> None:
    Demand(Resources.parse(unit)).check()
