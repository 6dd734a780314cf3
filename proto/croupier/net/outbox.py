"""What waits to be sent to one peer: bounded, in order, taken in batches.

A message costs 40-60 us of CPU whatever it carries, so one writer takes all that is
queued and sends it as one message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """A protobuf message, as far as the outbox is concerned."""

    def ByteSize(self) -> int:  # noqa: N802 - protobuf's name
        """Size on the wire, in bytes."""
        ...


# Of a `bytes` object, and of its place in a queue.
ENCODED_OVERHEAD = 100

MessageT = TypeVar("MessageT", bound=Sized)


class Encoded(bytes):
    """A message that is on the wire already: a twentieth of the memory of a small one."""

    __slots__ = ()

    def ByteSize(self) -> int:  # noqa: N802 - protobuf's name
        """Size on the wire, in bytes."""
        return len(self) + ENCODED_OVERHEAD


def joined(messages: Iterable[Encoded]) -> bytes:
    """The wire form of a message whose field 1 repeats `messages`."""
    parts: list[bytes] = []
    for message in messages:
        parts.append(_head(len(message)))
        parts.append(message)
    return b"".join(parts)


def _head(size: int) -> bytes:
    """The tag and the length of an entry of field 1."""
    head = bytearray(b"\x0a")
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head)


class Budget:
    """Bytes that wait in several outboxes together.

    Attributes:
        used: how many there are.
    """

    def __init__(self, most: int) -> None:
        """At most so many should wait."""
        self._most = most
        self.used = 0

    def add(self, size: int) -> None:
        """So many bytes more wait, or fewer if it is negative."""
        self.used += size

    @property
    def is_over(self) -> bool:
        """Whether more wait than should."""
        return self.used > self._most


class Outbox(Generic[MessageT]):
    """A queue of messages for one peer. One reader, any number of writers, one loop."""

    def __init__(
        self,
        limit: int,
        batch_bytes: int = 512 * 1024,
        limit_bytes: int = 32 * 1024 * 1024,
        budget: Budget | None = None,
    ) -> None:
        """Hold at most `limit` messages and about `limit_bytes`; hand out `batch_bytes` at once.

        What is held counts toward `budget` too, which several outboxes share.
        """
        self._budget, self._taken = budget, 0
        self._limit, self._limit_bytes, self._batch_bytes = limit, limit_bytes, batch_bytes
        # Each message with its size, which costs about as much to find as to queue it.
        self._queue: deque[tuple[MessageT, int]] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def held_bytes(self) -> int:
        """What is queued or was taken last."""
        return self._bytes + self._taken

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is taken in."""
        return self._closed

    def put(self, message: MessageT) -> bool:
        """Queue `message`; False, and nothing is queued, if the outbox is full or closed."""
        full = len(self._queue) >= self._limit or self._bytes >= self._limit_bytes
        if self._closed or full:
            return False
        self._append(message)
        self._wake.set()
        return True

    def close(self, last: MessageT | None = None) -> None:
        """Take in nothing more; what is queued, and then `last`, may still be taken out."""
        if last is not None and not self._closed:
            self._append(last)
        self._closed = True
        self._wake.set()

    def drop(self) -> None:
        """Forget what is queued, and what was taken."""
        self._release_taken()
        if self._budget is not None:
            self._budget.add(-self._bytes)
        self._queue.clear()
        self._bytes = 0

    async def take(self) -> list[MessageT]:
        """Wait for messages and take a batch, at least one; empty once closed and drained.

        The batch before is taken to be written now: the budget counts it until then.
        """
        self._release_taken()
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

    def _release_taken(self) -> None:
        if self._budget is not None:
            self._budget.add(-self._taken)
        self._taken = 0

    def _append(self, message: MessageT) -> None:
        size = message.ByteSize()
        self._queue.append((message, size))
        self._bytes += size
        if self._budget is not None:
            self._budget.add(size)
