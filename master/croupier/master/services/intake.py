"""The way of a request from its bytes to its message.

Rule: bytes are counted, and their lists bounded, before they are parsed. The requests of one
principal are parsed one after the other, however many streams it has, so that it holds the loop for
one slice at a time. A message with many calls is parsed in pieces.

No message is parsed that has more entries than an honest peer sends. An empty entry takes two bytes
on the wire and up to 110 in memory, so a message of legal size could block the loop for seconds. A
scan stops at the first bound. It works in steps, between which other work may run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import nullcontext
from functools import cache
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from croupier.master.access.rate_limits import RateLimiter, Usage
from croupier.model.errors import InvalidRequest
from croupier.process.time_slice import TimeSlice

# Entries of one list, unless `BOUNDS` names it.
MOST_ENTRIES: Final = 16_384
BOUNDS: Final = {
    "croupier.v1.FrameworkServiceConnectRequest.calls": 4_096,
    "croupier.v1.RegisterPage.tasks": 100_000,
    "croupier.v1.Register.tasks": 100_000,
}
# Fields of a piece of a stream, or of the request of a unary call, at all depths together.
MOST_FIELDS: Final = 524_288
# A smaller message is parsed in 4 ms, whatever it has.
SMALL_BYTES: Final = 128 * 1024
# A piece ends before it has more than this, unless one entry is larger.
PIECE_BYTES: Final = 64 * 1024
PIECE_ENTRIES: Final = 500
# Fields between two steps, about a millisecond.
_STEP: Final = 2_000
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_CONTINUED: Final = bytes(range(128, 256))

# A field on the wire: its number, its wire type, and where it, its value and its end are.
Field = tuple[int, int, int, int, int]

Parse = Callable[[bytes], Any]
# Returns the bytes of the next request, or what is no bytes at the end of the stream.
Read = Callable[[], Awaitable[object]]
# Messages of commands beside tasks carry 64 KiB; their start has a command and its environment.
BULK_BYTES: Final = 512 * 1024


class Piece(NamedTuple):
    """A part of a message that is a message too, and the number of its fields."""

    data: bytes
    entries: int


class _List(NamedTuple):
    """A field that the scan checks. `most` 0: it is no list. `inner` None: it is no message."""

    name: str
    most: int
    is_packed: bool
    inner: Descriptor | None


def fields_of(data: bytes, at: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message in `data[at:end]`; raises InvalidRequest if malformed."""
    try:
        while at < end:
            begin, tag = at, data[at]
            value = at = at + 1
            if tag > 127:
                tag, value = _varint(data, begin)
                at = value
            kind = tag & 7
            if kind == _DELIMITED:
                size = data[at]
                value = at + 1
                if size > 127:
                    size, value = _varint(data, at)
                at = value + size
            elif kind == _VARINT:
                _, at = _varint(data, at)
            elif kind in (_FIXED32, _FIXED64):
                at += 4 if kind == _FIXED32 else 8
            else:
                raise _malformed()
            if at > end:
                raise _malformed()
            yield tag >> 3, kind, begin, value, at
    except IndexError:
        raise _malformed() from None


def split(data: bytes, kind: Descriptor) -> list[Piece]:
    """Return a message in pieces, its fields in order; raises InvalidRequest if it has too many."""
    (carrier,) = (field for field in kind.fields if field.is_repeated)
    most = BOUNDS.get(carrier.full_name, MOST_ENTRIES)
    pieces, begun, before, entries = list[Piece](), 0, 0, 0
    for _, _, begin, _, end in fields_of(data, 0, len(data)):
        if entries == most:
            raise InvalidRequest(f"more than {most} {carrier.name} in one message")
        held = entries - before
        if held and (end - begun > PIECE_BYTES or held == PIECE_ENTRIES):
            pieces.append(Piece(data[begun:begin], held))
            begun, before = begin, entries
        entries += 1
    return [*pieces, Piece(data[begun:], entries - before)]


def scan(data: bytes, kind: Descriptor) -> Iterator[None]:
    """Check the number of fields of a message, and of entries of each list, at all depths.

    Yields None about each millisecond.

    Raises InvalidRequest if there are too many, or the message is malformed.
    """
    if len(data) < SMALL_BYTES:
        return
    waiting, seen = [(kind, 0, len(data))], 0
    while waiting:
        message, begin, end = waiting.pop()
        lists, entries = _lists(message), Counter[int]()
        for number, wire, _, value, stop in fields_of(data, begin, end):
            seen += 1
            if seen > MOST_FIELDS:
                raise InvalidRequest(f"more than {MOST_FIELDS} fields in one message")
            if not seen % _STEP:
                yield
            found = lists.get(number)
            if found is None:
                continue
            if found.most:
                is_packed = found.is_packed and wire == _DELIMITED
                entries[number] += _numbers(data[value:stop]) if is_packed else 1
                if entries[number] > found.most:
                    raise InvalidRequest(f"more than {found.most} entries of {found.name}")
            if found.inner is not None and wire == _DELIMITED:
                waiting.append((found.inner, value, stop))


def _numbers(packed: bytes) -> int:
    """Return how many numbers a packed list has: each has one byte below 128, its last."""
    return len(packed.translate(None, _CONTINUED))


@cache
def _lists(kind: Descriptor) -> dict[int, _List]:
    """Return the lists and messages of a type, by their number."""
    found = {}
    for field in kind.fields:
        most = BOUNDS.get(field.full_name, MOST_ENTRIES) if field.is_repeated else 0
        if most or field.message_type is not None:
            is_packed = field.cpp_type not in (
                FieldDescriptor.CPPTYPE_STRING,
                FieldDescriptor.CPPTYPE_MESSAGE,
            )
            name = f"{kind.name}.{field.name}"
            found[field.number] = _List(name, most, is_packed, field.message_type)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position behind it."""
    number = data[at]
    if number < 128:
        return number, at + 1
    number &= 127
    for shift in range(7, 70, 7):
        at += 1
        byte = data[at]
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at + 1
    raise _malformed()


def _malformed() -> InvalidRequest:
    return InvalidRequest("the request cannot be parsed")


class Intake:
    """Parses the requests of one method."""

    def __init__(self, parse: Any, limiter: RateLimiter) -> None:
        """`parse` is the `FromString` of the request's type."""
        self._parse: Parse = parse
        self._kind: Descriptor = parse.__self__.DESCRIPTOR
        self._limiter = limiter

    async def request(self, usage: Usage | None, data: bytes) -> Any:
        """Return a unary call's request; `usage` None is not limited. Raises InvalidRequest."""
        if usage is not None:
            self._limiter.answered(usage, len(data))
        async with nullcontext() if usage is None else usage.lane:
            return await self._parsed(data)

    async def requests(self, usage: Usage | None, read: Read) -> AsyncGenerator[Any, None]:
        """Yield what a stream receives, at the rate of its principal; `usage` None has no limit.

        The lane of the principal is held until the next request is asked for. Raises InvalidRequest
        if a message is malformed, or has too many entries; RateExceeded if the principal has too
        much in flight.
        """
        held = TimeSlice()
        while True:
            # What is not read yet takes no memory, and what was handled is not kept.
            await self._limiter.settle(usage)
            data = await read()
            if not isinstance(data, bytes):
                return
            with self._limiter.holding(usage, len(data)):
                for piece in split(data, self._kind):
                    await self._limiter.counted(usage, piece.entries)
                    async with nullcontext() if usage is None else usage.lane:
                        yield await self._parsed(piece.data)
                    if held.is_over:
                        await held.give_way()
                del data, piece

    async def bulk(self, read: Read) -> AsyncGenerator[Any, None]:
        """Yield what a stream with a pace of its own receives; raises InvalidRequest."""
        while isinstance(data := await read(), bytes):
            if len(data) > BULK_BYTES:
                raise InvalidRequest(f"a message has more than {BULK_BYTES} bytes")
            yield await self._parsed(data)

    async def _parsed(self, data: bytes) -> Any:
        held = TimeSlice()
        for _ in scan(data, self._kind):
            if held.is_over:
                await held.give_way()
        try:
            return self._parse(data)
        except DecodeError:
            raise InvalidRequest("the request cannot be parsed") from None
