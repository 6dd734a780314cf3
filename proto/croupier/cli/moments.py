"""Times of day as people write them in flags."""

from __future__ import annotations

from datetime import datetime

from croupier.model.durations import parse_duration
from croupier.model.errors import InvalidRequest

_EXAMPLES = "examples: 2026-12-01T08:00, 2026-12-01T08:00Z, +2h, now"


def parse_moment(text: str, since_ms: int) -> int:
    """Return a time, in milliseconds since the epoch; `+2h` and `now` count from `since_ms`.

    A time without a zone is of this machine. Raises InvalidRequest if it is none.
    """
    if text == "now":
        return since_ms
    if text.startswith("+"):
        return since_ms + round(1000 * parse_duration(text[1:]))
    try:
        return round(1000 * datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError):
        raise InvalidRequest(f"{text[:80]!r} is not a time ({_EXAMPLES})") from None
