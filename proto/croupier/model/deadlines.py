"""What is to happen at a time, unless it is put off or called off first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT")


class Deadlines(Generic[KeyT]):
    """One time per key. Setting is O(log n), amortised; memory is O(keys that are set)."""

    def __init__(self) -> None:
        """Begin with none."""
        self._heap: list[tuple[float, int, KeyT]] = []
        self._live: dict[KeyT, tuple[float, int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: object) -> bool:
        return key in self._live

    def __iter__(self) -> Iterator[KeyT]:
        return iter(self._live)

    def set(self, key: KeyT, at: float) -> None:
        """Have `key` come due at `at`, in place of any earlier setting."""
        self._count += 1
        self._live[key] = (at, self._count)
        heapq.heappush(self._heap, (at, self._count, key))
        if len(self._heap) > 2 * len(self._live) + 64:
            self._heap = [(due, number, each) for each, (due, number) in self._live.items()]
            heapq.heapify(self._heap)

    def set_at_most(self, key: KeyT, at: float) -> None:
        """Have `key` come due at `at`, or earlier if it was set so."""
        if key not in self._live or self._live[key][0] > at:
            self.set(key, at)

    def cancel(self, key: KeyT) -> None:
        """Call `key` off; nothing happens if it was not set."""
        self._live.pop(key, None)

    def at(self, key: KeyT) -> float | None:
        """When `key` comes due; None if it is not set."""
        live = self._live.get(key)
        return None if live is None else live[0]

    def next(self) -> float | None:
        """When the earliest comes due; None if nothing is set."""
        while self._heap:
            at, number, key = self._heap[0]
            if self._live.get(key) == (at, number):
                return at
            heapq.heappop(self._heap)
        return None

    def due(self, now: float) -> Iterator[KeyT]:
        """Take out what has come due by `now`, earliest first, one at a time.

        What is called off or set while this runs counts: the former is left out, the latter
        comes up if it is due too.
        """
        while (at := self.next()) is not None and at <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._live[key]
            yield key
