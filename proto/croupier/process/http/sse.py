"""Server-sent events, as bytes."""

from __future__ import annotations


def event(kind: str, data: bytes, event_id: str = "") -> bytes:
    """Return an event of a kind; `data` and `event_id` have no line breaks."""
    head = f"id: {event_id}\n" if event_id else ""
    return b"%bevent: %b\ndata: %b\n\n" % (head.encode(), kind.encode(), data)


def comment() -> bytes:
    """Return what readers ignore, as a sign of life."""
    return b":\n\n"
