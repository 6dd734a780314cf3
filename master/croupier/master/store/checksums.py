"""Checksums of records, so that a flipped bit on disk does not become another record.

Rule: a checksum covers kind, id and body, so a body cannot pass for that of another record.
"""

from __future__ import annotations

from zlib import crc32

from croupier.model.errors import CroupierError

# Bytes before a sealed value.
PREFIX = 9


class Damaged(CroupierError):
    """A record that differs from what was written. The text never quotes it."""


def checksum(*parts: bytes) -> int:
    """Return a CRC32 over `parts` and their lengths."""
    sum_of_all = 0
    for part in parts:
        sum_of_all = crc32(part, crc32(b"%d:" % len(part), sum_of_all))
    return sum_of_all


def sealed(key: bytes, value: bytes) -> bytes:
    """Return `value` with the checksum of key and value before it."""
    return b"%08x %s" % (checksum(key, value), value)


def unsealed(key: bytes, value: bytes) -> bytes:
    """Return the value that `sealed` was given.

    Raises:
        Damaged: if the checksum does not match.
    """
    prefix, body = value[:PREFIX], value[PREFIX:]
    if prefix != b"%08x " % checksum(key, body):
        raise Damaged("its checksum does not match")
    return body
