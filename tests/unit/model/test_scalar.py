"""Durations, scalars and ranges: parsed exactly, or refused."""

from __future__ import annotations

import pytest

from croupier.model.durations import duration_text, parse_duration, span_text
from croupier.model.errors import InvalidRequest
from croupier.model.ranges import (
    MAX_NUMBER,
    MAX_RANGES,
    count,
    difference,
    format_ranges,
    intersection,
    lowest,
    make_ranges,
    parse_ranges,
)
from croupier.model.scalar import (
    MAX_MILLI,
    check_milli,
    check_unit,
    check_units,
    format_milli,
    format_scalar,
    parse_scalar,
)


@pytest.mark.parametrize(
    ("name", "text", "milli"),
    [
        ("cpus", "4", 4000),
        ("cpus", " 0.5 ", 500),
        ("cpus", ".5", 500),
        ("mem", ".5GB", 512_000),
        ("cpus", "0.001", 1),
        ("cpus", "1.500", 1500),
        ("cpus", "0", 0),
        ("cpus", "007", 7000),
        ("gpus", "2.0000000000000", 2000),
        ("mem", "128", 128_000),
        ("mem", "128MB", 128_000),
        ("mem", "128 MiB", 128_000),
        ("mem", "128m", 128_000),
        ("mem", "8GB", 8 * 1024 * 1000),
        ("mem", "1.5g", 1536 * 1000),
        ("mem", "1TB", 1024 * 1024 * 1000),
        ("mem", "1pb", 1024**3 * 1000),
        ("disk", "1024KB", 1000),
        ("disk", "512KiB", 500),
        ("mem", "128k", 125),
    ],
)
def test_an_amount_is_read_in_thousandths(name: str, text: str, milli: int) -> None:
    assert parse_scalar(name, text) == milli


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "-1", "+1", "nan", "NaN", "inf", "1e3", "0x10", "1_000", "1,5", ".", "5.",
        "1..5", "..5", ".GB", "1.5.5", "\u0664", "1\u00b2",
        "one", "1 2", "1" * 21, "0." + "0" * 20 + "1", "1\n2",
    ],
)  # fmt: skip
def test_text_that_is_not_a_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="cpus"):
        parse_scalar("cpus", text)


@pytest.mark.parametrize("text", ["0.0001", "1.0005", "0.00000000001"])
def test_finer_than_a_thousandth_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="finer than a thousandth"):
        parse_scalar("cpus", text)


def test_a_kilobyte_is_finer_than_a_thousandth_of_a_mib() -> None:
    with pytest.raises(InvalidRequest, match="finer"):
        parse_scalar("mem", "1KB")


def test_digits_beyond_float_precision_count() -> None:
    with pytest.raises(InvalidRequest, match="finer"):
        parse_scalar("cpus", "9000000000.00000000000000000001")


@pytest.mark.parametrize("text", ["4GB", "4B", "4cpus"])
def test_only_sizes_have_units(text: str) -> None:
    with pytest.raises(InvalidRequest, match="takes no unit"):
        parse_scalar("cpus", text)


@pytest.mark.parametrize("text", ["4B", "4XB", "4GBB", "4Gi i", "4IB", "4EB", "4mbb"])
def test_an_unknown_unit_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="mem"):
        parse_scalar("mem", text)


def test_the_largest_amount_is_accepted_and_one_more_refused() -> None:
    assert parse_scalar("cpus", "9007199254740.992") == MAX_MILLI
    with pytest.raises(InvalidRequest, match="is too large"):
        parse_scalar("cpus", "9007199254740.993")


def test_a_huge_number_is_refused_at_once() -> None:
    with pytest.raises(InvalidRequest, match="is too large"):
        parse_scalar("mem", "9" * 20 + "PB")


def test_a_negative_amount_is_refused() -> None:
    assert check_milli("cpus", 0) == 0
    with pytest.raises(InvalidRequest, match=r"-0\.001 is negative"):
        check_milli("cpus", -1)


@pytest.mark.parametrize(
    ("milli", "text"),
    [(0, "0"), (1, "0.001"), (10, "0.01"), (1500, "1.5"), (4000, "4"), (-2500, "-2.5")],
)
def test_thousandths_are_written_as_decimals(milli: int, text: str) -> None:
    assert format_milli(milli) == text


@pytest.mark.parametrize(
    ("name", "milli", "text"),
    [
        ("cpus", 1500, "1.5"),
        ("mem", 128_000, "128MB"),
        ("mem", 500, "0.5MB"),
        ("mem", 1024_000, "1GB"),
        ("mem", 1536_000, "1.5GB"),
        ("mem", 1025_000, "1025MB"),
        ("disk", 10 * 1024_000, "10GB"),
        ("mem", 0, "0MB"),
    ],
)
def test_sizes_have_an_exact_unit_in_text(name: str, milli: int, text: str) -> None:
    assert format_scalar(name, milli) == text
    assert parse_scalar(name, text) == milli


@pytest.mark.parametrize("text", ["512", " 0.5", ".5", "1000"])
def test_a_size_that_a_person_gives_needs_a_unit(text: str) -> None:
    for name in ("mem", "disk"):
        with pytest.raises(InvalidRequest, match=f"{name}: {text.strip()} has no unit; write "):
            check_unit(name, text)
        with pytest.raises(InvalidRequest, match="has no unit"):
            check_units(f"cpus:1;{name}:{text}")
    assert check_unit("cpus", text) == text
    assert [check_unit("mem", size) for size in ("0", "512MB", "1Gi")] == ["0", "512MB", "1Gi"]
    assert parse_scalar("mem", "1Gi") == parse_scalar("mem", "1GB") == parse_scalar("mem", "1024MB")


# Durations as people write them.


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1m.5s", 60.5),
        ("30s", 30.0),
        ("500ms", 0.5),
        ("1h30m", 5400.0),
        ("2d", 172800.0),
    ],
)
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "-1s", "1 s", "1x", "nan", "inf", "1e9", "9" * 99, "1s!"]
)
def test_malformed_durations_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (86_400, "1 d"),
        (273_700, "3 d 4 h"),
        (-1, "0 s"),
    ],
)
def test_durations_are_formatted(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (45.4, "45s"), (60, "1m"), (200, "3m20s"), (7500, "2h5m"), (273_600, "3d4h")],
)
def test_spans_in_columns_are_what_flags_read(seconds: float, text: str) -> None:
    assert span_text(seconds) == text
    assert parse_duration(text) == round(seconds)


# Ranges of whole numbers: equal sets are equal values.


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


@pytest.mark.parametrize(
    ("left", "right", "both"),
    [
        (((1, 3), (5, 7)), ((3, 5),), ((3, 3), (5, 5))),
        (((1, 9),), ((2, 3), (5, 6), (9, 12)), ((2, 3), (5, 6), (9, 9))),
        (((1, 3),), ((4, 4),), ()),
        ((), ((1, 1),), ()),
    ],
)
def test_intersections(
    left: tuple[tuple[int, int], ...],
    right: tuple[tuple[int, int], ...],
    both: tuple[tuple[int, int], ...],
) -> None:
    assert intersection(left, right) == both
    assert intersection(right, left) == both


def test_lowest_takes_from_the_front() -> None:
    assert lowest(((1, 2), (5, 9)), 4) == ((1, 2), (5, 6))
    assert lowest(((1, 2),), 0) == ()
    with pytest.raises(ValueError, match="1 short"):
        lowest(((1, 2),), 3)


def test_counting_does_not_list_the_numbers() -> None:
    assert count(((0, MAX_NUMBER),)) == MAX_NUMBER + 1
    assert count(()) == 0
