"""Encoded messages that no encoder of protobuf writes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

_HUGE_VARINT: Final = b"\xff" * 9 + b"\x01"
# Field numbers that no message has, in each wire type; 3 and 4 are the old groups.
_UNKNOWN: Final = (
    b"\xf8\xff\xff\xff\x0f\x01",
    b"\xfa\x3f\x03abc",
    b"\xfd\x3f\0\0\0\0",
    b"\xf9\x3f\0\0\0\0\0\0\0\0",
    b"\xfb\x3f\xfc\x3f",
    b"\xfb\x3f",
    b"\xfc\x3f",
    b"\0\0",
    b"\x07",
)


def damaged(encoded: bytes, rng: random.Random) -> bytes:
    """Return `encoded` with one kind of damage, or garbage."""
    return rng.choice(_DAMAGES)(encoded, rng)


def _truncated(encoded: bytes, rng: random.Random) -> bytes:
    return encoded[: rng.randrange(len(encoded) + 1)]


def _flipped(encoded: bytes, rng: random.Random) -> bytes:
    changed = bytearray(encoded)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _doubled(encoded: bytes, rng: random.Random) -> bytes:
    return encoded * rng.choice((2, 2, 3))


def _with_unknown(encoded: bytes, rng: random.Random) -> bytes:
    extra = rng.choice(_UNKNOWN)
    return rng.choice((encoded + extra, extra + encoded, encoded + extra * 50))


def _with_huge_length(encoded: bytes, rng: random.Random) -> bytes:
    return (
        encoded + bytes([rng.randrange(1, 16) << 3 | 2]) + rng.choice((_HUGE_VARINT, b"\xff\x7f"))
    )


def _nested(encoded: bytes, rng: random.Random) -> bytes:
    """Wrap a message in itself, as one field of it."""
    field = bytes([rng.randrange(1, 16) << 3 | 2])
    for _ in range(rng.choice((2, 20, 150))):
        encoded = field + _varint(len(encoded)) + encoded
    return encoded


def _groups(_: bytes, rng: random.Random) -> bytes:
    return b"\x0b" * rng.choice((1, 99, 101, 10_000))


def _garbage(_: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 2, 10, 1000)))


def _spliced(encoded: bytes, rng: random.Random) -> bytes:
    cut = rng.randrange(len(encoded) + 1)
    return encoded[cut:] + encoded[:cut]


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


_DAMAGES: Final[tuple[Callable[[bytes, random.Random], bytes], ...]] = (
    _truncated, _truncated, _flipped, _flipped, _flipped, _doubled, _with_unknown,
    _with_huge_length, _nested, _groups, _garbage, _spliced,
)  # fmt: skip
