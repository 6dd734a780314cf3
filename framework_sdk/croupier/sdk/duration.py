"""Seconds in the API of frameworks, milliseconds on the wire."""

from __future__ import annotations

import math

from croupier.model.errors import InvalidRequest
from croupier.model.limits import MAX_WAIT_S


def to_milliseconds(name: str, seconds: float) -> int:
    """Return `seconds` in whole milliseconds; `name` names the argument in the error.

    Raises:
        InvalidRequest: if it is negative, not a number, or over 365 days.
    """
    if math.isnan(seconds) or not 0 <= seconds <= MAX_WAIT_S:
        raise InvalidRequest(f"{name} must be between 0 seconds and 365 days, not {seconds}")
    return round(seconds * 1000)


def from_milliseconds(milliseconds: int) -> float:
    """Return the seconds in `milliseconds` from a master; at most 365 days."""
    return min(milliseconds / 1000, MAX_WAIT_S)
