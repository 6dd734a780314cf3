"""Sets of whole numbers, such as ports, kept as inclusive ranges.

A value is a tuple of `(begin, end)` pairs: ascending, disjoint and never touching,
so equal sets are equal tuples.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, pairwise

from croupier.model.errors import InvalidRequest

Range = tuple[int, int]
Ranges = tuple[Range, ...]

MAX_NUMBER = 2**63 - 1
MAX_RANGES = 1_000


def make_ranges(pairs: Iterable[Range]) -> Ranges:
    """Return the ranges of `pairs`, sorted and coalesced. O(n log n).

    Raises InvalidRequest if a range is empty, negative, too large or overlaps another.
    """
    ordered = sorted(pairs)
    if len(ordered) > MAX_RANGES:
        raise InvalidRequest(f"more than {MAX_RANGES} ranges")
    for begin, end in ordered:
        if not 0 <= begin <= end <= MAX_NUMBER:
            raise InvalidRequest(f"range {begin}-{end} is not a range of whole numbers")
    for (_, end), (begin, _) in pairwise(ordered):
        if begin <= end:
            raise InvalidRequest(f"ranges overlap at {begin}")
    return _coalesced(ordered)


def union(*several: Ranges) -> Ranges:
    """Return the union of `several` in O(n log n); raises ValueError if two share a number."""
    ordered = sorted(chain.from_iterable(several))
    for (_, end), (begin, _) in pairwise(ordered):
        if begin <= end:
            raise ValueError(f"{begin} is in both ranges")
    return _coalesced(ordered)


def difference(left: Ranges, right: Ranges) -> Ranges:
    """Return `left` without the numbers of `right`; raises ValueError if one is not in `left`."""
    rest: list[Range] = []
    pending = list(reversed(right))
    for begin, end in left:
        while pending and pending[-1][0] <= end:
            taken_begin, taken_end = pending.pop()
            if taken_begin < begin or taken_end > end:
                raise ValueError(f"{taken_begin}-{taken_end} is not within {format_ranges(left)}")
            if taken_begin > begin:
                rest.append((begin, taken_begin - 1))
            begin = taken_end + 1
        if begin <= end:
            rest.append((begin, end))
    if pending:
        raise ValueError(f"{pending[-1][0]} is not within {format_ranges(left)}")
    return tuple(rest)


def intersection(left: Ranges, right: Ranges) -> Ranges:
    """Return the numbers that are in both. O(len(left) + len(right))."""
    found: list[Range] = []
    mine, other = 0, 0
    while mine < len(left) and other < len(right):
        begin = max(left[mine][0], right[other][0])
        end = min(left[mine][1], right[other][1])
        if begin <= end:
            found.append((begin, end))
        if left[mine][1] < right[other][1]:
            mine += 1
        else:
            other += 1
    return tuple(found)


def contains(outer: Ranges, inner: Ranges) -> bool:
    """Return whether all numbers of `inner` are in `outer`. O(len(outer) + len(inner))."""
    index = 0
    for begin, end in inner:
        while index < len(outer) and outer[index][1] < begin:
            index += 1
        if index == len(outer) or outer[index][0] > begin or outer[index][1] < end:
            return False
    return True


def count(ranges: Ranges) -> int:
    """Return the number of numbers in `ranges`."""
    return sum(end - begin + 1 for begin, end in ranges)


def lowest(ranges: Ranges, number: int) -> Ranges:
    """Return the `number` lowest numbers of `ranges`; raises ValueError if there are fewer."""
    taken: list[Range] = []
    for begin, end in ranges:
        if number <= 0:
            break
        last = min(end, begin + number - 1)
        taken.append((begin, last))
        number -= last - begin + 1
    if number > 0:
        raise ValueError(f"{format_ranges(ranges)} is {number} short")
    return tuple(taken)


def parse_ranges(text: str) -> Ranges:
    """Read `[31000-32000,40000]`; raises InvalidRequest if `text` has another form."""
    body = text.strip()
    if not (body.startswith("[") and body.endswith("]")):
        raise InvalidRequest(f"{body!r} is not a list of ranges (example: [31000-32000])")
    pairs: list[Range] = []
    for part in filter(None, (piece.strip() for piece in body[1:-1].split(","))):
        begin, dash, end = (piece.strip() for piece in part.partition("-"))
        if not (_is_number(begin) and (_is_number(end) if dash else True)):
            raise InvalidRequest(f"{part!r} is not a range (example: [31000-32000])")
        pairs.append((int(begin), int(end if dash else begin)))
    return make_ranges(pairs)


def format_ranges(ranges: Ranges) -> str:
    """Return `ranges` in the form that `parse_ranges` reads."""
    return "[" + ",".join(str(b) if b == e else f"{b}-{e}" for b, e in ranges) + "]"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20


def _coalesced(ordered: list[Range]) -> Ranges:
    merged: list[Range] = []
    for begin, end in ordered:
        if merged and merged[-1][1] + 1 == begin:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return tuple(merged)
