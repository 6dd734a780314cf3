"""Durations as people write them: `30s`, `10m`, `1h30m`, `500ms`; a bare number is seconds.

Rule: sentences show a duration by `duration_text`, and columns by `span_text`, which flags read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.model.limits import MAX_WAIT_S

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER: Final = r"[0-9]{1,9}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}"
_PART: Final = re.compile(rf"({_NUMBER})(ms|s|m|h|d)")
_BARE: Final = re.compile(_NUMBER)


def parse_duration(text: str) -> float:
    """Return the seconds in `text`; raises InvalidRequest if it is not a duration."""
    if _BARE.fullmatch(text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InvalidRequest(f"{text[:80]!r} is not a duration (examples: 30s, 10m, 1h30m)")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def duration_text(seconds: float) -> str:
    """Return whole `seconds` as text: `45 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    return " ".join(f"{number} {unit}" for number, unit in _parts(seconds, ("d", "h", "min", "s")))


def span_text(seconds: float) -> str:
    """Return whole `seconds` as `parse_duration` reads them: `45s`, `3m20s`, `2h5m`, `3d4h`."""
    return "".join(f"{number}{unit}" for number, unit in _parts(seconds, ("d", "h", "m", "s")))


def _parts(seconds: float, units: Sequence[str]) -> list[tuple[int, str]]:
    """Return the two largest units of a time, without those that are 0."""
    whole = max(0, round(seconds))
    sizes = (86_400, 3_600, 60, 1)
    first = next((n for n, size in enumerate(sizes) if whole >= size), len(sizes) - 1)
    parts: list[tuple[int, str]] = []
    for size, unit in list(zip(sizes, units, strict=True))[first : first + 2]:
        number, whole = divmod(whole, size)
        if number or not parts:
            parts.append((number, unit))
    return parts


def to_milliseconds(name: str, seconds: float) -> int:
    """Return `seconds` in whole milliseconds; `name` names the argument in the error.

    Raises InvalidRequest if it is negative, not a number, or over 365 days.
    """
    if math.isnan(seconds) or not 0 <= seconds <= MAX_WAIT_S:
        raise InvalidRequest(f"{name} must be between 0 seconds and 365 days, not {seconds}")
    return round(seconds * 1000)


def from_milliseconds(milliseconds: int) -> float:
    """Return the seconds in `milliseconds` from a master; at most 365 days."""
    return min(milliseconds / 1000, MAX_WAIT_S)
