"""Reads RecordIO: a stream of records, each after its length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from croupier.model.errors import InvalidRequest

# Digits of a length; a record is far smaller.
MAX_DIGITS: Final = 10


class Records:
    """Reads the records of a stream."""

    def __init__(self, most_bytes: int) -> None:
        """Accept records of at most `most_bytes`."""
        self._most, self._data = most_bytes, bytearray()

    def read(self, data: bytes) -> Iterator[bytes]:
        """Yield the records that `data` completes.

        Raises:
            InvalidRequest: if a length is malformed or too large.
        """
        self._data += data
        while (found := self._next()) is not None:
            yield found

    def _next(self) -> bytes | None:
        end = self._data.find(b"\n", 0, MAX_DIGITS + 1)
        if end < 0 and len(self._data) <= MAX_DIGITS:
            return None
        head = bytes(self._data[: max(end, 0)])
        if not head.isdigit():
            raise InvalidRequest("a record begins with its length and a line break")
        size = int(head)
        if size > self._most:
            raise InvalidRequest(f"a record has {size} bytes; at most {self._most} are accepted")
        if len(self._data) < end + 1 + size:
            return None
        found = bytes(self._data[end + 1 : end + 1 + size])
        del self._data[: end + 1 + size]
        return found
