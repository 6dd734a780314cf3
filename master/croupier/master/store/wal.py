"""A check of SQLite's write-ahead log before SQLite reads it.

SQLite reads the log up to the first frame whose checksum is wrong and silently drops the rest.
After a crash, that may be only the commit that was being synced. If frames of a later commit
follow the broken frame, durable commits are lost: the log is damaged.

https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from operator import mul
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
# The lowest bit gives the byte order of checksums.
_MAGIC: Final = 0x377F0682
_MASK: Final = 0xFFFFFFFF
# The part of a frame's header that is summed: number of the page, size of the database.
_SUMMED_BYTES: Final = 8

Sums = tuple[int, int]


class _Frame(NamedTuple):
    salts: bytes
    is_commit: bool
    is_intact: bool


class _Checksum:
    """SQLite's checksum of blocks of one size, as a weighted sum.

    Adding word by word takes ten times longer.
    """

    def __init__(self, size: int, is_big: bool) -> None:
        """Prepare for blocks of `size` bytes with words of that byte order."""
        self._swaps = is_big == (sys.byteorder == "little")
        # Each pair of words x, y maps the sums (a, b) to (a + b + x, a + 2b + x + y), so the
        # weights are the Fibonacci numbers, counted from the end of the block.
        fibonacci = [0, 1]
        while len(fibonacci) < size // 4 + 2:
            fibonacci.append((fibonacci[-1] + fibonacci[-2]) & _MASK)
        count = size // 4
        self._first = [fibonacci[count - 1 - n] for n in range(count)]
        self._second = [fibonacci[count - n] for n in range(count)]
        self._carry = fibonacci[count - 1], fibonacci[count], fibonacci[count + 1]

    def add(self, sums: Sums, block: bytes) -> Sums:
        """Return the checksums after `block`."""
        words = array("I", block)
        if self._swaps:
            words.byteswap()
        (one, two), (low, middle, high) = sums, self._carry
        return (
            (low * one + middle * two + sum(map(mul, self._first, words))) & _MASK,
            (middle * one + high * two + sum(map(mul, self._second, words))) & _MASK,
        )


def damage(path: Path) -> str:
    """Return what is wrong with the log at `path`; empty if it has all durable commits.

    Raises OSError if it cannot be read.
    """
    what = _damage_at(path)
    # A running master may write the log while it is read.
    return what if what and _damage_at(path) == what else ""


def _damage_at(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return _damage(file)
    except FileNotFoundError:
        return ""


def _damage(file: BinaryIO) -> str:
    header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return ""
    size = int.from_bytes(header[8:12])
    checksum = _Checksum(_SUMMED_BYTES, is_big=bool(header[3] & 1))
    sums: Sums = 0, 0
    for begin in range(0, FRAME_HEADER_BYTES, _SUMMED_BYTES):
        sums = checksum.add(sums, header[begin : begin + _SUMMED_BYTES])
    is_ours = int.from_bytes(header[:4]) & ~1 == _MAGIC and 512 <= size <= 65536
    if not is_ours or sums != _sums(header[24:]):
        return "its header is damaged"
    broken, is_commit_lost = 0, False
    for number, frame in enumerate(_frames(file, size, header, sums), start=1):
        if frame.is_intact:
            continue
        broken = broken or number
        # Frames with other salts were written before the log was last restarted.
        if frame.salts == header[16:24]:
            if is_commit_lost:
                return f"frame {broken} of it is damaged, and commits follow it"
            is_commit_lost = frame.is_commit
    return ""


def _frames(file: BinaryIO, size: int, header: bytes, sums: Sums) -> Iterator[_Frame]:
    """Yield all whole frames of the log; a frame is intact only if all frames before it are."""
    is_big = bool(header[3] & 1)
    of_header, of_page = _Checksum(_SUMMED_BYTES, is_big), _Checksum(size, is_big)
    is_intact = True
    while len(head := file.read(FRAME_HEADER_BYTES)) == FRAME_HEADER_BYTES:
        page = file.read(size)
        if len(page) < size:
            return
        if is_intact:
            sums = of_page.add(of_header.add(sums, head[:_SUMMED_BYTES]), page)
            is_intact = head[8:16] == header[16:24] and sums == _sums(head[16:])
        yield _Frame(head[8:16], head[4:8] != bytes(4), is_intact)


def _sums(raw: bytes) -> Sums:
    return int.from_bytes(raw[:4]), int.from_bytes(raw[4:8])
