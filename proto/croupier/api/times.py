"""Times and durations of objects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

_NUMBER = r"[0-9]{1,9}(\.[0-9]{1,9})?"
# A span of time in a request; a bare number is seconds. The second part is of its JSON schema.
Duration = Annotated[
    str,
    {
        "pattern": rf"^({_NUMBER}|({_NUMBER}(ms|s|m|h|d)){{1,9}})$",
        "maxLength": 40,
        "examples": ["30s", "10m", "1h30m"],
    },
]


def time_text(time_ms: int) -> str:
    """Return a time, in milliseconds since the epoch, as UTC; empty if it is out of range."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return ""
