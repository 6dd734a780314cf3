"""The interface of stores, and the store in memory."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Protocol

from croupier.master.core.records import Record, Registry
from croupier.model.store_position import StorePosition


class Committing(Protocol):
    """The part of a store that commits decisions."""

    async def commit(self, records: Sequence[Record]) -> None:
        """Make all of `records` durable, or fail and make none so.

        Raises:
            Unavailable: if they are not durable; the master must then end.
        """
        ...


class Store(Committing, Protocol):
    """Durable records, used by one master at a time."""

    @property
    def commits(self) -> int:
        """The number of the last durable commit, counted over the life of the cluster."""
        ...

    @property
    def marked(self) -> StorePosition | None:
        """A position stored apart from the records, so that an old copy of them is detected."""
        ...

    async def load(self) -> Registry:
        """Return everything that was committed.

        Raises:
            Unavailable: if it cannot be read.
            InvalidRequest: if it is damaged, another program's, or of a newer version.
        """
        ...

    async def mark(self, position: StorePosition) -> None:
        """Store `position` apart from the records, where the store has a place for it.

        Raises:
            Unavailable: if it cannot be written.
        """
        ...

    async def check(self) -> None:
        """Check that the committed records are still in their place.

        Raises:
            Unavailable: if they were removed or replaced; the master must then end.
        """
        ...

    async def close(self) -> None:
        """Release the store."""
        ...


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
