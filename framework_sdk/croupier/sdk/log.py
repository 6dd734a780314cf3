"""The log of the SDK: the standard logger `croupier.sdk`.

Rule: a library writes nothing to stdout and configures no log of its program. Without any
configuration Python shows warnings and errors on stderr, and nothing below them.
"""

from __future__ import annotations

import logging
from typing import Final

_LOGGER: Final = logging.getLogger("croupier.sdk")


def log_event(
    level: int, event: str, *, with_traceback: bool = False, **fields: str | float | None
) -> None:
    """Log one event, named in snake_case, as `event name=value ...`.

    Handlers that write JSON find the parts in the record, as `event` and `fields`.
    """
    if not _LOGGER.isEnabledFor(level):
        return
    text = " ".join([event, *(f"{name}={_value(value)}" for name, value in fields.items())])
    extra = {"event": event, "fields": fields}
    _LOGGER.log(level, "%s", text, exc_info=with_traceback, extra=extra)


def _value(value: str | float | None) -> str:
    """Return a single printable word unchanged, and any other value quoted and escaped."""
    text = str(value)
    is_word = text.isprintable() and text != "" and not set(text) & set(" \"'=")
    return text if is_word else repr(text)
