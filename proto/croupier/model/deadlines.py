"""Deadlines by key, which can be moved and cancelled."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT")


class Deadlines(Generic[KeyT]):
    """One deadline per key. `set` is amortised O(log n); memory is O(keys)."""

    def __init__(self) -> None:
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
        """Set the deadline of `key` to `at`."""
        self._count += 1
        self._live[key] = (at, self._count)
        heapq.heappush(self._heap, (at, self._count, key))
        if len(self._heap) > 2 * len(self._live) + 64:
            self._heap = [(due, number, each) for each, (due, number) in self._live.items()]
            heapq.heapify(self._heap)

    def set_at_most(self, key: KeyT, at: float) -> None:
        """Set the deadline of `key` to `at`, unless it has an earlier one."""
        if key not in self._live or self._live[key][0] > at:
            self.set(key, at)

    def cancel(self, key: KeyT) -> None:
        """Remove the deadline of `key`, if it has one."""
        self._live.pop(key, None)

    def at(self, key: KeyT) -> float | None:
        """Return the deadline of `key`; None if it has none."""
        live = self._live.get(key)
        return None if live is None else live[0]

    def next(self) -> float | None:
        """Return the earliest deadline; None if there is none."""
        while self._heap:
            at, number, key = self._heap[0]
            if self._live.get(key) == (at, number):
                return at
            heapq.heappop(self._heap)
        return None

    def due(self, now: float) -> Iterator[KeyT]:
        """Remove and yield the keys that are due by `now`, earliest first.

        Changes during the iteration count: a cancelled key is skipped, and a new one is yielded if
        it is due.
        """
        while (at := self.next()) is not None and at <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._live[key]
            yield key
