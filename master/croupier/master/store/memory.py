"""A store that forgets with the process: for tests and trials."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from croupier.master.core.records import Record, Registry


class MemoryStore:
    """Keeps records in memory."""

    def __init__(self) -> None:
        """Begin with none."""
        self._registry = Registry()

    async def load(self) -> Registry:
        """A copy of everything that was committed to this object."""
        return deepcopy(self._registry)

    async def commit(self, records: Sequence[Record]) -> None:
        """Keep `records`."""
        for record in records:
            self._registry.apply(record)

    async def close(self) -> None:
        """Nothing to let go of."""
