"""What a store must do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from croupier.master.core.records import Record, Registry


class Store(Protocol):
    """Keeps records. One master at a time uses it."""

    async def load(self) -> Registry:
        """Everything that was committed.

        Raises:
            Unavailable: if it cannot be read.
            InvalidRequest: if it is not a store of ours, or of a newer version.
        """
        ...

    async def commit(self, records: Sequence[Record]) -> None:
        """Make all of `records` durable, or fail and make none so.

        Raises:
            Unavailable: if that cannot be done; the master must then end.
        """
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...
