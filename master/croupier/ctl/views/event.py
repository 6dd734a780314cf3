"""Lines of events."""

from __future__ import annotations

import textwrap
from datetime import UTC, datetime
from typing import Final

from croupier.cli.amounts import View
from croupier.model.printable import printable

# Narrower terminals get the time without the date, and no kind.
WIDE: Final = 80
KIND_WIDTH: Final = 22


def event_lines(event: View, width: int | None) -> list[str]:
    """Return the lines of an event, wrapped at `width` columns; None does not wrap.

    Words, such as ids, are never split.
    """
    is_wide = width is None or width >= WIDE
    head = f"{_time(event['time_ms'], is_wide=is_wide)} "
    if is_wide:
        head += f"{printable(event['kind']):{KIND_WIDTH}} "
    text = printable(event["text"])
    if width is None:
        return [head + text]
    return textwrap.wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * (len(head) if is_wide else 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _time(time_ms: int, *, is_wide: bool) -> str:
    try:
        at = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return "?"
    return f"{at:%Y-%m-%dT%H:%M:%SZ}" if is_wide else f"{at:%H:%M:%S}"
