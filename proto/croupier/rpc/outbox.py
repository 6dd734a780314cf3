"""What waits to be sent to one peer: bounded, in order, taken in batches.

A message costs 40-60 us of CPU whatever it carries, so one writer takes all that is
queued and sends it as one message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """A protobuf message, as far as the outbox is concerned."""

    def ByteSize(self) -> int:  # noqa: N802 - protobuf's name
        """Size on the wire, in bytes."""
        ...


MessageT = TypeVar("MessageT", bound=Sized)


class Outbox(Generic[MessageT]):
    """A queue of messages for one peer. One reader, any number of writers, one loop."""

    def __init__(
        self, limit: int, batch_bytes: int = 512 * 1024, limit_bytes: int = 32 * 1024 * 1024
    ) -> None:
        """Hold at most `limit` messages and about `limit_bytes`; hand out `batch_bytes` at once."""
        self._limit, self._limit_bytes, self._batch_bytes = limit, limit_bytes, batch_bytes
        # Each message with its size, which costs about as much to find as to queue it.
        self._queue: deque[tuple[MessageT, int]] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._queue)

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
        """Forget what is queued."""
        self._queue.clear()
        self._bytes = 0

    async def take(self) -> list[MessageT]:
        """Wait for messages and take a batch, at least one; empty once closed and drained."""
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
        return batch

    def _append(self, message: MessageT) -> None:
        size = message.ByteSize()
        self._queue.append((message, size))
        self._bytes += size
