"""Ranges of whole numbers: equal sets are equal values."""

from __future__ import annotations

import pytest

from croupier.model.errors import InvalidRequest
from croupier.model.ranges import (
    MAX_NUMBER,
    MAX_RANGES,
    count,
    difference,
    format_ranges,
    lowest,
    make_ranges,
    parse_ranges,
)


def test_ranges_are_sorted_and_coalesced() -> None:
    assert make_ranges([(5, 9), (1, 2), (3, 4), (11, 11)]) == ((1, 9), (11, 11))


@pytest.mark.parametrize(
    "pairs", [[(1, 3), (3, 4)], [(1, 9), (2, 3)], [(1, 1), (1, 1)], [(1, 9), (2, 3), (8, 12)]]
)
def test_overlapping_ranges_are_refused(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(InvalidRequest, match="overlap"):
        make_ranges(pairs)


@pytest.mark.parametrize("pair", [(2, 1), (-1, 3), (0, MAX_NUMBER + 1)])
def test_an_invalid_range_is_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(InvalidRequest, match="not a range of whole numbers"):
        make_ranges([pair])


def test_the_number_of_ranges_is_bounded() -> None:
    pairs = [(2 * i, 2 * i) for i in range(MAX_RANGES + 1)]
    assert len(make_ranges(pairs[1:])) == MAX_RANGES
    with pytest.raises(InvalidRequest, match="more than"):
        make_ranges(pairs)


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("[31000-32000]", ((31000, 32000),)),
        (" [ 1 - 2 , 5 ] ", ((1, 2), (5, 5))),
        ("[]", ()),
        ("[3,2,1]", ((1, 3),)),
        ("[0]", ((0, 0),)),
        (f"[{MAX_NUMBER}]", ((MAX_NUMBER, MAX_NUMBER),)),
    ],
)
def test_ranges_are_read(text: str, ranges: tuple[tuple[int, int], ...]) -> None:
    assert parse_ranges(text) == ranges


@pytest.mark.parametrize(
    "text",
    [
        "[a]", "[1-]", "[-1]", "[1-2-3]", "[1--2]", "[1.5]", "[\u0661]", "[\u00b2]", "[1 2]",
        "[" + "9" * 21 + "]", "[5-1]", "[" + "9" * 20 + "]", "[1", "1]", "1-2", "",
    ],
)  # fmt: skip
def test_malformed_ranges_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_ranges(text)


def test_the_text_form_is_read_back() -> None:
    value = ((1, 1), (3, 9))
    assert format_ranges(value) == "[1,3-9]"
    assert parse_ranges(format_ranges(value)) == value
    assert format_ranges(()) == "[]"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (((1, 3), (5, 7)), ((3, 5),)),
        (((1, 3),), ((4, 4),)),
        (((5, 7),), ((1, 1),)),
        ((), ((1, 1),)),
        (((5, 7),), ((4, 5),)),
    ],
)
def test_only_contained_numbers_can_be_subtracted(
    left: tuple[tuple[int, int], ...], right: tuple[tuple[int, int], ...]
) -> None:
    with pytest.raises(ValueError, match="not within"):
        difference(left, right)


def test_lowest_takes_from_the_front() -> None:
    assert lowest(((1, 2), (5, 9)), 4) == ((1, 2), (5, 6))
    assert lowest(((1, 2),), 0) == ()
    with pytest.raises(ValueError, match="1 short"):
        lowest(((1, 2),), 3)


def test_counting_does_not_list_the_numbers() -> None:
    assert count(((0, MAX_NUMBER),)) == MAX_NUMBER + 1
    assert count(()) == 0
