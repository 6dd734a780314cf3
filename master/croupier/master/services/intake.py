"""The way of a request from its bytes to its message.

Rule: bytes are counted, and their lists bounded, before they are parsed. The requests of one
principal are parsed one after the other, however many streams it has, so that it holds the loop for
one slice at a time. A message with many calls is parsed in pieces.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import nullcontext
from typing import Any, Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from croupier.master.access.rate_limits import RateLimiter, Usage
from croupier.master.wire.message_scan import scan, split
from croupier.model.errors import InvalidRequest
from croupier.process.time_slice import TimeSlice

Parse = Callable[[bytes], Any]
# Returns the bytes of the next request, or what is no bytes at the end of the stream.
Read = Callable[[], Awaitable[object]]
# Messages of commands beside tasks carry 64 KiB; their start has a command and its environment.
BULK_BYTES: Final = 512 * 1024


class Intake:
    """Parses the requests of one method."""

    def __init__(self, parse: Any, limiter: RateLimiter) -> None:
        """`parse` is the `FromString` of the request's type."""
        self._parse: Parse = parse
        self._kind: Descriptor = parse.__self__.DESCRIPTOR
        self._limiter = limiter

    async def request(self, usage: Usage | None, data: bytes) -> Any:
        """Return the request of a unary call; `usage` None is not limited.

        Raises:
            InvalidRequest: if it is malformed, or has too many entries.
        """
        if usage is not None:
            self._limiter.answered(usage, len(data))
        async with nullcontext() if usage is None else usage.lane:
            return await self._parsed(data)

    async def requests(self, usage: Usage | None, read: Read) -> AsyncGenerator[Any, None]:
        """Yield what a stream receives, at the rate of its principal; `usage` None has no limit.

        The lane of the principal is held until the next request is asked for.

        Raises:
            InvalidRequest: if a message is malformed, or has too many entries.
            RateExceeded: if the principal has too much in flight.
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
        """Yield what a stream with a pace of its own receives.

        Raises:
            InvalidRequest: if a message is malformed or too large.
        """
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
