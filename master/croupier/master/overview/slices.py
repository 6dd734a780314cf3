"""Walks over the state in slices, between which the driver runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from croupier.master.core.state import State
from croupier.master.services.paging import Read

SLICE_S: Final = 0.002
# Items between two looks at the clock.
ITEMS: Final = 32

ItemT = TypeVar("ItemT")


class Walk:
    """Visits items of the state.

    Attributes:
        cost_s: seconds that it has held the loop.
    """

    def __init__(self, read: Read) -> None:
        self.cost_s = 0.0
        self._read = read

    async def over(
        self,
        list_items: Callable[[State], list[ItemT]],
        visit: Callable[[State, Sequence[ItemT]], None],
        at_once: int = ITEMS,
    ) -> None:
        """Call `visit` with `at_once` items after the other; they may have gone meanwhile.

        Raises:
            CroupierError: as `Leadership.read`.
        """
        items = await self._read(list_items)
        at = 0

        def some(state: State) -> int:
            begun, end = time.perf_counter(), at
            while end < len(items):
                visit(state, items[end : end + at_once])
                end += at_once
                if time.perf_counter() - begun >= SLICE_S:
                    break
            self.cost_s += time.perf_counter() - begun
            return end

        while at < len(items):
            at = await self._read(some)
