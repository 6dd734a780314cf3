"""Messages that wait to be sent to one peer: bounded, in order, taken in batches.

A gRPC message costs 40-60 us of CPU regardless of its content, so the writer sends all queued
messages as one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar


class Sized(Protocol):
    """A protobuf message."""

    def ByteSize(self) -> int:  # noqa: N802 - protobuf's name
        """Size on the wire, in bytes."""


# Memory of a `bytes` object and of its place in a queue, in bytes.
ENCODED_OVERHEAD = 100

MessageT = TypeVar("MessageT", bound=Sized)


class Encoded(bytes):
    """A serialized message, in a twentieth of the memory of a small message object."""

    __slots__ = ()

    def ByteSize(self) -> int:  # noqa: N802 - protobuf's name
        """Size on the wire, in bytes."""
        return len(self) + ENCODED_OVERHEAD


def joined(messages: Iterable[Encoded]) -> bytes:
    """Return the wire form of a message whose field 1 repeats `messages`."""
    parts: list[bytes] = []
    for message in messages:
        parts.append(_head(len(message)))
        parts.append(message)
    return b"".join(parts)


def unless_encoded(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return a serializer that leaves a message as it is if a session has built its bytes."""
    return lambda message: message if isinstance(message, bytes) else encode(message)


def _head(size: int) -> bytes:
    """Return the tag and the length of an entry of field 1."""
    head = bytearray(b"\x0a")
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head)


class Budget:
    """A bound on the bytes in several outboxes together; `used` are in them now."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.used = 0

    @property
    def is_over(self) -> bool:
        """Whether the outboxes hold more than the bound."""
        return self.used > self._limit_bytes


class Outbox(Generic[MessageT]):
    """A queue of messages for one peer. One reader, any number of writers, one loop."""

    def __init__(
        self,
        limit: int,
        batch_bytes: int = 512 * 1024,
        limit_bytes: int = 32 * 1024 * 1024,
        budget: Budget | None = None,
    ) -> None:
        """Hold at most `limit` messages and about `limit_bytes`; take `batch_bytes` at once.

        The bytes count towards `budget` too, which several outboxes share.
        """
        self._budget, self._taken = budget, 0
        self._limit, self._limit_bytes, self._batch_bytes = limit, limit_bytes, batch_bytes
        # Each message with its size, which costs about as much as queueing the message.
        self._queue: deque[tuple[MessageT, int]] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def held_bytes(self) -> int:
        """Bytes that are queued or were taken last."""
        return self._bytes + self._taken

    @property
    def is_closed(self) -> bool:
        """Whether the outbox accepts no more messages."""
        return self._closed

    def put(self, message: MessageT) -> bool:
        """Queue `message`; return False, without effect, if the outbox is full or closed."""
        full = len(self._queue) >= self._limit or self._bytes >= self._limit_bytes
        if self._closed or full:
            return False
        self._append(message)
        self._wake.set()
        return True

    def close(self, last: MessageT | None = None) -> None:
        """Accept no more messages; those queued, and then `last`, can still be taken."""
        if last is not None and not self._closed:
            self._append(last)
        self._closed = True
        self._wake.set()

    def drop(self) -> None:
        """Drop all queued messages; the batch taken last no longer counts."""
        self._charge(-self._bytes - self._taken)
        self._queue.clear()
        self._bytes = self._taken = 0

    async def take(self) -> list[MessageT]:
        """Wait for messages and return a batch; an empty one once the outbox is closed and drained.

        The budget counts a batch until the next is taken: it is written by then.
        """
        self._charge(-self._taken)
        self._taken = 0
        while not self._queue:
            if self._closed:
                return []
            self._wake.clear()
            await self._wake.wait()
        batch: list[MessageT] = []
        size = 0
        while self._queue and (not batch or size + self._queue[0][1] <= self._batch_bytes):
            message, its_size = self._queue.popleft()
            size += its_size
            batch.append(message)
        self._bytes -= size
        self._taken = size
        return batch

    def _append(self, message: MessageT) -> None:
        size = message.ByteSize()
        self._queue.append((message, size))
        self._bytes += size
        self._charge(size)

    def _charge(self, size: int) -> None:
        if self._budget is not None:
            self._budget.used += size
