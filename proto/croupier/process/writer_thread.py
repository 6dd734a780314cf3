"""A thread for blocking writes, which the loop waits for without a wake-up while the disk is fast.

To be woken by another thread costs a loop about 0.1 ms of processor time, as much as a short commit
itself. So the loop blocks for a short write of a fast disk, for `BLOCK_S` at most; after that, and
while the disk is slow, it serves others meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

# The loop blocks for writes while they usually take less than this.
SHORT_S: Final = 0.001
# The longest time for which it blocks.
BLOCK_S: Final = 0.002
# The part of the latest write in the usual time.
_WEIGHT: Final = 0.2

T = TypeVar("T")


class WriterThread:
    """Does blocking work in order, in a thread of its own.

    Attributes:
        usual_s: how long short work takes lately; it rises at once and falls slowly.
    """

    def __init__(self, name: str) -> None:
        """Start no thread before the first work."""
        self._thread = ThreadPoolExecutor(1, name)
        self.usual_s = SHORT_S

    async def run(self, work: Callable[[], T], *, is_short: bool = False) -> T:
        """Do `work` and return its result; `is_short`: it takes no longer than a small write.

        Raises:
            Exception: what `work` raises.
        """
        if not is_short:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        future = self._thread.submit(self._timed, work)
        if self.usual_s < SHORT_S:
            try:
                return future.result(BLOCK_S)
            except TimeoutError:
                # Work itself may raise it.
                if future.done():
                    raise
        return await asyncio.wrap_future(future)

    def shutdown(self) -> None:
        """Wait for the work that was begun, and end the thread."""
        self._thread.shutdown()

    def _timed(self, work: Callable[[], T]) -> T:
        began = time.monotonic()
        try:
            return work()
        finally:
            took = time.monotonic() - began
            usual = self.usual_s + _WEIGHT * (took - self.usual_s)
            self.usual_s = took if took > BLOCK_S else usual
