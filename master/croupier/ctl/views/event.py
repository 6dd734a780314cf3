"""Lines of events."""

from __future__ import annotations

import textwrap
from typing import Final

from croupier.api.times import time_text
from croupier.cli.terminal import View
from croupier.model.printable import printable

# Narrower terminals get the time without the date, and no kind.
WIDE: Final = 80
KIND_WIDTH: Final = 22


def event_lines(event: View, width: int | None) -> list[str]:
    """Return the lines of an event, wrapped at `width` columns; None does not wrap.

    Words, such as ids, are never split.
    """
    is_wide = width is None or width >= WIDE
    time = time_text(event["time_ms"])
    head = f"{(time if is_wide else time[11:19]) or '?'} "
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
