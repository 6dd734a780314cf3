"""What a store must do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from croupier.master.core.records import Record, Registry
from croupier.model.store_position import StorePosition


class Committing(Protocol):
    """The part of a store that decisions need."""

    async def commit(self, records: Sequence[Record]) -> None:
        """Make all of `records` durable, or fail and make none so.

        Raises:
            Unavailable: if that cannot be done; the master must then end.
        """
        ...


class Store(Committing, Protocol):
    """Keeps records. One master at a time uses it."""

    @property
    def commits(self) -> int:
        """The number of the last durable commit, counted over the life of the cluster."""
        ...

    @property
    def marked(self) -> StorePosition | None:
        """A position that is kept apart from the records; an old copy does not know it."""
        ...

    async def load(self) -> Registry:
        """Everything that was committed.

        Raises:
            Unavailable: if it cannot be read.
            InvalidRequest: if it is damaged, not a store of ours, or of a newer version.
        """
        ...

    async def mark(self, position: StorePosition) -> None:
        """Keep `position` apart from the records, if there is a place for it.

        Raises:
            Unavailable: if that cannot be done.
        """
        ...

    async def check(self) -> None:
        """Look whether what was committed is still in its place.

        Raises:
            Unavailable: if it was removed or replaced; the master must then end.
        """
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...
