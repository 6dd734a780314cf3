"""Durations as people write them: `30s`, `10m`, `1h30m`, `500ms`; a bare number is seconds."""

from __future__ import annotations

import re
from typing import Final

from croupier.model.errors import InvalidRequest

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")
_BARE: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def parse_duration(text: str) -> float:
    """Return the seconds in `text`.

    Raises:
        InvalidRequest: if it is not a duration.
    """
    if _BARE.fullmatch(text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InvalidRequest(f"{text[:80]!r} is not a duration (examples: 30s, 10m, 1h30m)")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def duration_text(seconds: float) -> str:
    """Return whole `seconds` as text: `45 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 >= 60 else "")
