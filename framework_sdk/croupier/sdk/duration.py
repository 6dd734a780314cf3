"""Seconds, as frameworks write them, and milliseconds, as the wire has them."""

from __future__ import annotations

import math

from croupier.model.errors import InvalidRequest
from croupier.model.limits import MAX_WAIT_S


def milliseconds(what: str, seconds: float) -> int:
    """`seconds` in whole milliseconds.

    Raises:
        InvalidRequest: if it is negative, not a number, or over 365 days.
    """
    if math.isnan(seconds) or not 0 <= seconds <= MAX_WAIT_S:
        raise InvalidRequest(f"{what} must be between 0 seconds and 365 days, not {seconds}")
    return round(seconds * 1000)


def from_milliseconds(told: int) -> float:
    """The seconds in `told`, which a master has said; at most 365 days."""
    return min(told / 1000, MAX_WAIT_S)
