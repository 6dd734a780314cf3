"""Schedules: `30 2 * * 1-5`, `@daily`, `@every 10m`.

Rule: the times of a schedule depend on it and its time zone only, not on where one begins to look.
So a restart finds the same times.

Where the clock of a zone leaps, this is as in Debian's cron: a schedule with a fixed minute and
hour runs once, at the end of the leap if its time is skipped, at the first of two equal times
otherwise. A schedule whose minute or hour begins with `*` runs at each matching time that the clock
shows. cronsim does the former; for the latter it finds the matches between two leaps, since it
loses times at a leap of half an hour.

Instants are seconds since the epoch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from croupier.model.durations import parse_duration
from croupier.model.errors import InvalidRequest

ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY: Final = "@every"
_MAX_EVERY_S: Final = 366 * 86_400
_FIELDS: Final = ("minute", "hour", "day of the month", "month", "day of the week")
# Datetimes end with the year 9999.
_LAST: Final = 250_000_000_000
# A leap year on each day of the week comes within 40 years.
_SAMPLE: Final = datetime(2001, 1, 1)
# Offsets last longer than this, but for some of before 1970.
_STRIDE_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a job runs.

    Attributes:
        text: as the file has it.
        zone_name: name of the time zone, such as `Europe/Vienna`.
        zone: that zone.
    """

    text: str
    zone_name: str = "UTC"
    _fields: str = field(init=False, repr=False, compare=False, default="")
    _every_s: int = field(init=False, repr=False, compare=False, default=0)
    zone: tzinfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read the text.

        Raises InvalidRequest if it is malformed, or never fires, or there is no such time zone.
        """
        object.__setattr__(self, "zone", read_zone(self.zone_name))
        words = self.text.split()
        if words[:1] == [_EVERY]:
            object.__setattr__(self, "_every_s", _read_interval(self.text, words[1:]))
            return
        fields = ALIASES.get(self.text.strip().lower(), " ".join(words))
        _check_fields(self.text, fields)
        object.__setattr__(self, "_fields", fields)

    def next_after(self, instant: int) -> int | None:
        """Return the first time after `instant`; None if there is none within 50 years."""
        if instant > _LAST:
            return None
        if self._every_s:
            return (instant // self._every_s + 1) * self._every_s
        return self._next_fixed(instant) if self._is_fixed else self._next_shown(instant)

    def times(self, after: int, until: int) -> Iterator[int]:
        """Return the times after `after`, up to and with `until`."""
        at = self.next_after(after)
        while at is not None and at <= until:
            yield at
            at = self.next_after(at)

    def shown(self, instant: int) -> str:
        """Return an instant as the clock of the zone shows it: `2026-03-29 02:30:00 CEST`."""
        return datetime.fromtimestamp(instant, self.zone).strftime("%Y-%m-%d %H:%M:%S %Z")

    @property
    def _is_fixed(self) -> bool:
        minute, hour = self._fields.split()[:2]
        return not (minute.startswith("*") or hour.startswith("*"))

    def _next_fixed(self, instant: int) -> int | None:
        for found in CronSim(self._fields, datetime.fromtimestamp(instant, self.zone)):
            at = round(found.timestamp())
            # In a repeated hour, cronsim finds the first of two equal times, which is over.
            if at > instant:
                return at
        return None

    def _next_shown(self, instant: int) -> int | None:
        """Search one period after the other, each with one UTC offset."""
        while True:
            clock = timezone(offset_at(instant, self.zone))
            found = next(CronSim(self._fields, datetime.fromtimestamp(instant, clock)), None)
            if found is None:
                return None
            at = round(found.timestamp())
            change = next_change(instant, at, self.zone)
            # The first second of the next stretch counts too.
            if change is None or self._matches(change):
                return at if change is None else change
            instant = change

    def _matches(self, instant: int) -> bool:
        wall = datetime.fromtimestamp(instant, self.zone).replace(tzinfo=None)
        return next(CronSim(self._fields, wall - timedelta(seconds=1)), None) == wall


def read_zone(name: str) -> tzinfo:
    """Return a time zone by its name; raises InvalidRequest if this machine knows no such zone."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidRequest(
            f"no time zone {name[:80]!r} on this machine (an example: Europe/Vienna; the zones are"
            " in the package tzdata)"
        ) from None


def _read_interval(text: str, words: list[str]) -> int:
    if len(words) != 1:
        raise InvalidRequest(f"{text!r} is not a schedule (an example: @every 10m)")
    seconds = parse_duration(words[0])
    if seconds != int(seconds) or not 1 <= seconds <= _MAX_EVERY_S:
        raise InvalidRequest(f"{text!r}: whole seconds are expected, up to 366 days")
    return int(seconds)


def _check_fields(text: str, fields: str) -> None:
    words = fields.split()
    if words and words[0].startswith("@"):
        raise InvalidRequest(
            f"{text[:80]!r} is not a schedule; the names are {', '.join(sorted(ALIASES))}, @every"
        )
    if len(words) != len(_FIELDS):
        raise InvalidRequest(
            f"{text[:80]!r} has {len(words)} fields; a schedule has 5: {', '.join(_FIELDS)}"
        )
    for index, name in enumerate(_FIELDS):
        alone = ["*"] * len(_FIELDS)
        alone[index] = words[index]
        try:
            CronSim(" ".join(alone), _SAMPLE)
        except (CronSimError, AssertionError, TypeError, ValueError):
            raise InvalidRequest(f"{text[:80]!r}: {words[index]!r} is not a {name}") from None
    try:
        first = next(CronSim(fields, _SAMPLE), None)
    except CronSimError:
        first = None
    if first is None:
        raise InvalidRequest(f"{text[:80]!r} never fires: no month has such a day")


def offset_at(instant: int, zone: tzinfo) -> timedelta:
    """Return the offset of the wall clock from UTC."""
    offset = datetime.fromtimestamp(instant, zone).utcoffset()
    assert offset is not None
    return offset


def next_change(start: int, end: int, zone: tzinfo) -> int | None:
    """Return the first instant after `start`, up to `end`, at which the offset changes."""
    old = offset_at(start, zone)

    def has_changed(instant: int) -> bool:
        return offset_at(instant, zone) != old

    for late in range(start + _STRIDE_S, end + _STRIDE_S, _STRIDE_S):
        if has_changed(late):
            early = late - _STRIDE_S
            found = early + bisect_left(range(early, late), True, key=has_changed)
            return found if found <= end else None
    return None
