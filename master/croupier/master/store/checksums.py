"""Checksums of records: a bit that a disk has turned must not become another record.

Rule: a checksum covers the kind and the id as well as the body, so none of them can change, and a
body cannot stand for another record.
"""

from __future__ import annotations

from zlib import crc32

from croupier.model.errors import CroupierError

_DIGITS = 8


class Damaged(CroupierError):
    """A record is not what was written. The text never quotes it."""


def checksum(*parts: bytes) -> int:
    """Return a CRC32 over `parts` and their lengths."""
    sum_of_all = 0
    for part in parts:
        sum_of_all = crc32(part, crc32(b"%d:" % len(part), sum_of_all))
    return sum_of_all


def sealed(key: bytes, value: bytes) -> bytes:
    """`value` with a checksum before it, for the key that it is kept under."""
    return b"%08x %s" % (checksum(key, value), value)


def is_sealed(value: bytes) -> bool:
    """Whether `value` begins with a checksum: neither JSON nor what zlib makes does."""
    return value[:1] not in (b"{", b"x")


def unsealed(key: bytes, value: bytes) -> bytes:
    """What `sealed` was given.

    Raises:
        Damaged: if it is not that.
    """
    told, body = value[: _DIGITS + 1], value[_DIGITS + 1 :]
    if told != b"%08x " % checksum(key, body):
        raise Damaged("its checksum does not match")
    return body
