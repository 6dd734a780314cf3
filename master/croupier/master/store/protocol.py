"""The interface of stores, and the store in memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from typing import Protocol

from croupier.master.core.records import Record
from croupier.master.core.registry import Registry
from croupier.model.store_position import StorePosition


class Committing(Protocol):
    """The part of a store that commits decisions."""

    async def commit(self, records: Sequence[Record]) -> None:
        """Make all of `records` durable, or fail and make none so.

        Raises Unavailable if they are not durable; the master must then end.
        """
        ...


class Store(Committing):
    """Durable records, used by one master at a time; stores are its subclasses.

    Attributes:
        commits: the number of the last durable commit, counted over the life of the cluster.
        marked: a position stored apart from the records, so that an old copy of them is detected.
    """

    commits: int = 0
    marked: StorePosition | None = None

    @abstractmethod
    async def load(self) -> Registry:
        """Return everything that was committed.

        Raises Unavailable if it cannot be read; InvalidRequest if it is damaged, another program's,
        or of a newer version.
        """

    async def mark(self, position: StorePosition) -> None:
        """Store `position` apart from records, if there is a place for it; raises Unavailable."""

    async def check(self) -> None:
        """Check that the committed records are still in their place, if they can be removed.

        Raises Unavailable if they were removed or replaced; the master must then end.
        """

    async def close(self) -> None:
        """Release what the store holds."""


class MemoryStore(Store):
    """Records in memory."""

    def __init__(self) -> None:
        self._registry = Registry()

    async def load(self) -> Registry:
        """Return a copy of everything that was committed to this object."""
        return deepcopy(self._registry)

    async def commit(self, records: Sequence[Record]) -> None:
        """Keep `records`."""
        for record in records:
            self._registry.apply(record)
        self.commits += 1
