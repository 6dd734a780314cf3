"""Times and durations of objects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

_NUMBER: Final = r"[0-9]{1,9}(\.[0-9]{1,9})?"
# Characters of one.
MAX_DURATION: Final = 40
# The JSON schema of a span of time in a request; a bare number is seconds.
DURATION: Final[dict[str, Any]] = {
    "type": "string",
    "pattern": rf"^({_NUMBER}|({_NUMBER}(ms|s|m|h|d)){{1,9}})$",
    "maxLength": MAX_DURATION,
    "examples": ["30s", "10m", "1h30m"],
}


def time_text(time_ms: int) -> str:
    """Return a time, in milliseconds since the epoch, as UTC; empty if it is out of range."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return ""
