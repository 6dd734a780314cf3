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

    def __init__(self, limit: int, batch_bytes: int = 512 * 1024) -> None:
        """Hold at most `limit` messages; hand out about `batch_bytes` of them at once."""
        self._limit, self._batch_bytes = limit, batch_bytes
        self._queue: deque[MessageT] = deque()
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
        if self._closed or len(self._queue) >= self._limit:
            return False
        self._queue.append(message)
        self._wake.set()
        return True

    def close(self, last: MessageT | None = None) -> None:
        """Take in nothing more; what is queued, and then `last`, may still be taken out."""
        if last is not None and not self._closed:
            self._queue.append(last)
        self._closed = True
        self._wake.set()

    def drop(self) -> None:
        """Forget what is queued."""
        self._queue.clear()

    async def take(self) -> list[MessageT]:
        """Wait for messages and take a batch, at least one; empty once closed and drained."""
        while not self._queue:
            if self._closed:
                return []
            self._wake.clear()
            await self._wake.wait()
        batch: list[MessageT] = []
        size = 0
        while self._queue and (not batch or size + self._queue[0].ByteSize() <= self._batch_bytes):
            size += self._queue[0].ByteSize()
            batch.append(self._queue.popleft())
        return batch
