"""Demand: a shape of scalars, a count, constraints."""

from __future__ import annotations

import pytest

from croupier.model.attributes import equals
from croupier.model.demand import MAX_COUNT, Demand
from croupier.model.errors import InvalidRequest
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


def test_a_demand_is_written_for_people() -> None:
    assert str(Demand(UNIT)) == "any number of <cpus:1;ports:2>"
    assert str(Demand(UNIT, 3, (equals("a", "b"),))) == "3 <cpus:1;ports:2>, a equals b"
