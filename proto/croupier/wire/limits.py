"""Bounds of repeated fields, checked before any entry is read.

An empty entry takes two bytes on the wire and some microseconds to convert, so a message of
legal size could block the loop for seconds.
"""

from __future__ import annotations

from croupier.model.errors import InvalidRequest


def check_count(number: int, most: int, what: str) -> None:
    """Check that a repeated field of `number` entries has at most `most`. O(1).

    Raises:
        InvalidRequest: if it has more; the message calls them `what`.
    """
    if number > most:
        raise InvalidRequest(f"more than {most} {what}")
