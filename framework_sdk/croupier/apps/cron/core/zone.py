"""Between instants and the wall clock of a time zone.

Instants are seconds since the epoch. Wall-clock times are naive datetimes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

# Offsets last longer than this, but for some of before 1970.
_STRIDE_S: Final = 86_400


def offset_at(instant: int, zone: tzinfo) -> timedelta:
    """Return what the wall clock is ahead of UTC."""
    offset = datetime.fromtimestamp(instant, zone).utcoffset()
    assert offset is not None
    return offset


def wall_clock(instant: int, offset: timedelta) -> datetime:
    """Return what a wall clock shows that is `offset` ahead of UTC."""
    return datetime.fromtimestamp(instant, UTC).replace(tzinfo=None) + offset


def instant_of(wall: datetime, offset: timedelta) -> int:
    """Return when a wall clock that is `offset` ahead of UTC shows `wall`."""
    return round((wall - offset).replace(tzinfo=UTC).timestamp())


def first_instant(wall: datetime, zone: tzinfo) -> int:
    """Return when the clock of `zone` first shows `wall`, or passes it by a leap forward."""
    at = round(wall.replace(tzinfo=zone).timestamp())
    if wall_clock(at, offset_at(at, zone)) == wall:
        return at
    # It was skipped: the leap is near.
    return change_between(at - 2 * _STRIDE_S, at + 2 * _STRIDE_S, zone, wall)


def change_between(early: int, late: int, zone: tzinfo, passed: datetime) -> int:
    """Return the first instant whose wall clock is past `passed`, found by halving."""
    while late - early > 1:
        middle = (early + late) // 2
        if wall_clock(middle, offset_at(middle, zone)) > passed:
            late = middle
        else:
            early = middle
    return late


def next_change(start: int, end: int, zone: tzinfo) -> int | None:
    """Return the first instant after `start`, up to `end`, at which the offset changes."""
    old = offset_at(start, zone)
    for late in _strides(start, end):
        if offset_at(late, zone) == old:
            continue
        early = late - _STRIDE_S
        while late - early > 1:
            middle = (early + late) // 2
            if offset_at(middle, zone) == old:
                early = middle
            else:
                late = middle
        return late if late <= end else None
    return None


def _strides(start: int, end: int) -> Iterator[int]:
    at = start
    while at < end:
        at += _STRIDE_S
        yield at
