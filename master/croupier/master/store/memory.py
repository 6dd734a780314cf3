"""A store in memory: for tests and trials."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from croupier.master.core.records import Record, Registry
from croupier.model.store_position import StorePosition


class MemoryStore:
    """Records in memory; see `Store`."""

    def __init__(self) -> None:
        self._registry = Registry()
        self.commits = 0
        self.marked: StorePosition | None = None

    async def load(self) -> Registry:
        """Return a copy of everything that was committed to this object."""
        return deepcopy(self._registry)

    async def commit(self, records: Sequence[Record]) -> None:
        """Keep `records`."""
        for record in records:
            self._registry.apply(record)
        self.commits += 1

    async def mark(self, position: StorePosition) -> None:
        """Do nothing: no copy of this store can be older."""

    async def check(self) -> None:
        """Do nothing: memory cannot be removed."""

    async def close(self) -> None:
        """Do nothing."""
