"""Arithmetic of resources against plain Python numbers and sets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from croupier.model import ranges as rng
from croupier.model.ranges import MAX_NUMBER, Ranges
from croupier.model.resources import NOTHING, Resources, total_of
from croupier.model.scalar import MAX_MILLI, format_scalar, parse_scalar
from croupier.v1 import resources_pb2 as pb
from croupier.wire.resources import resources_from_wire, resources_to_wire

SCALARS = ("cpus", "mem", "disk", "gpus", "licences")
# Small enough that sums of a few stay in range, large enough to leave 32 bits far behind.
MILLI = st.integers(0, MAX_MILLI // 8)
NUMBERS = st.frozensets(st.integers(0, 40), max_size=20)
ITEMS = st.frozensets(st.sampled_from("abcdef"))


def ranges_of(numbers: frozenset[int]) -> Ranges:
    return rng.make_ranges((number, number) for number in numbers)


def numbers_of(ranges: Ranges) -> frozenset[int]:
    return frozenset(n for begin, end in ranges for n in range(begin, end + 1))


@st.composite
def amounts(draw: st.DrawFn, milli: st.SearchStrategy[int] = MILLI) -> Resources:
    scalars = draw(st.dictionaries(st.sampled_from(SCALARS), milli))
    ports, zones = draw(NUMBERS), draw(ITEMS)
    return Resources(scalars, {"ports": ranges_of(ports)}, {"zones": zones})


@st.composite
def parted(draw: st.DrawFn) -> tuple[Resources, Resources]:
    """Return two amounts that do not overlap."""
    one, other = draw(amounts()), draw(amounts())
    ports = numbers_of(other.ranges.get("ports", ())) - numbers_of(one.ranges.get("ports", ()))
    zones = other.sets.get("zones", frozenset()) - one.sets.get("zones", frozenset())
    return one, Resources(other.scalars, {"ports": ranges_of(ports)}, {"zones": zones})


@given(amounts(st.integers(0, MAX_MILLI)))
def test_the_text_form_is_read_back(amount: Resources) -> None:
    assert Resources.parse(str(amount)) == amount


@given(st.sampled_from(SCALARS), st.integers(0, MAX_MILLI))
def test_a_scalar_is_read_back_to_the_last_thousandth(name: str, milli: int) -> None:
    assert parse_scalar(name, format_scalar(name, milli)) == milli


@given(amounts(st.integers(0, MAX_MILLI)))
def test_an_amount_crosses_the_wire_unchanged(amount: Resources) -> None:
    wire = pb.Resources.FromString(resources_to_wire(amount).SerializeToString())
    assert resources_from_wire(wire) == amount


@given(amounts(), amounts())
def test_what_is_within_a_room_is_the_most_that_fits(amount: Resources, room: Resources) -> None:
    part = amount.within(room)
    assert part <= room
    rest = amount - part
    assert part + rest == amount
    assert not rest.within(room - part)


@given(parted())
def test_adding_and_subtracting_the_same_has_no_effect(pair: tuple[Resources, Resources]) -> None:
    one, other = pair
    both = one + other
    assert both - other == one
    assert both - one == other
    assert both - one - other == NOTHING
    assert both == other + one
    assert hash(both) == hash(other + one)


@given(parted())
def test_a_part_fits_in_the_whole(pair: tuple[Resources, Resources]) -> None:
    one, other = pair
    assert one <= one + other
    assert one + other >= other
    assert (one + other <= one) == (not other)


@given(amounts(), amounts())
def test_subtraction_works_exactly_when_the_amount_fits(one: Resources, other: Resources) -> None:
    if other <= one:
        assert (one - other) + other == one
    else:
        with pytest.raises(ValueError, match="cannot take"):
            one - other


@given(amounts(), amounts(), amounts())
def test_fitting_is_a_partial_order(a: Resources, b: Resources, c: Resources) -> None:
    assert a <= a
    assert a >= NOTHING
    if a <= b and b <= a:
        assert a == b
    if a <= b and b <= c:
        assert a <= c


@given(st.lists(amounts(), max_size=4))
def test_a_total_is_the_sum_of_each_scalar(parts: list[Resources]) -> None:
    total = total_of(parts)
    assert {n: total[n] for n in SCALARS} == {n: sum(p[n] for p in parts) for n in SCALARS}


UNITS = st.builds(
    Resources,
    st.dictionaries(st.sampled_from([*SCALARS, "ports"]), st.integers(1, 5000), min_size=1),
)


@given(UNITS, amounts(st.integers(0, 50_000)), st.integers(0, 30))
def test_as_many_units_can_be_carved_as_are_within(
    unit: Resources, free: Resources, most: int
) -> None:
    units = unit.units_within(free, most)
    assert 0 <= units <= most
    assert unit.carve(free, units) <= free
    for name, milli in unit.scalars.items():
        if name != "ports":
            assert unit.carve(free, units)[name] == units * milli
    if units < most:
        # Fractions of a number share numbers, so one unit more always needs more than there is.
        with pytest.raises(ValueError, match=r"cannot carve|short"):
            unit.carve(free, units + 1)


@given(NUMBERS)
def test_ranges_equal_the_set_of_their_numbers(numbers: frozenset[int]) -> None:
    ranges = ranges_of(numbers)
    assert numbers_of(ranges) == numbers
    assert rng.count(ranges) == len(numbers)
    assert rng.parse_ranges(rng.format_ranges(ranges)) == ranges
    assert all(end + 1 < begin for (_, end), (begin, _) in pairwise(ranges))


@given(NUMBERS, NUMBERS)
def test_union_and_difference_are_those_of_sets(
    left: frozenset[int], right: frozenset[int]
) -> None:
    if left.isdisjoint(right):
        assert rng.union(ranges_of(left), ranges_of(right)) == ranges_of(left | right)
    else:
        with pytest.raises(ValueError, match="in both"):
            rng.union(ranges_of(left), ranges_of(right))
    if right <= left:
        assert rng.difference(ranges_of(left), ranges_of(right)) == ranges_of(left - right)
    else:
        with pytest.raises(ValueError, match="not within"):
            rng.difference(ranges_of(left), ranges_of(right))
    assert rng.contains(ranges_of(left), ranges_of(right)) == (right <= left)


@given(NUMBERS, st.integers(0, 20))
def test_the_lowest_numbers_are_taken(numbers: frozenset[int], wanted: int) -> None:
    assume(wanted <= len(numbers))
    taken = numbers_of(rng.lowest(ranges_of(numbers), wanted))
    assert sorted(taken) == sorted(numbers)[:wanted]


@given(st.integers(0, MAX_NUMBER), st.integers(0, MAX_NUMBER))
def test_large_ranges_cost_no_more_than_small_ones(one: int, other: int) -> None:
    begin, end = sorted((one, other))
    whole: Ranges = ((0, MAX_NUMBER),)
    assert rng.union(rng.difference(whole, ((begin, end),)), ((begin, end),)) == whole
