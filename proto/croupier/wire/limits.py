"""How many entries a repeated field may have, checked before any of them is read.

An empty entry takes two bytes on the wire and some microseconds to convert, so a message of
legal size could hold the loop for seconds.
"""

from __future__ import annotations

from croupier.model.errors import InvalidRequest


def check_count(number: int, most: int, what: str) -> None:
    """Refuse a repeated field of `number` entries if it may have `most`. O(1).

    Raises:
        InvalidRequest: if there are more; the message names them as `what`.
    """
    if number > most:
        raise InvalidRequest(f"more than {most} {what}")
