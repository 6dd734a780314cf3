"""The pace of bytes that the master passes on, so that it keeps time for its other work."""

from __future__ import annotations

import asyncio
from typing import Final

from croupier.model.clock import Clock

# Bytes a second.
BYTES_PER_S: Final = 64 << 20
# The pace may be exceeded for this time.
BURST_S: Final = 0.02


class Pace:
    """The pace of all streams of one kind together."""

    def __init__(self, clock: Clock) -> None:
        """Begin without a debt."""
        self._clock = clock
        self._free_at = 0.0

    async def passed(self, size: int) -> None:
        """Count `size` bytes; wait while the pace is exceeded.

        Everything else has at least one turn of the loop meanwhile.
        """
        now = self._clock.now()
        self._free_at = max(now, self._free_at) + size / BYTES_PER_S
        await asyncio.sleep(max(0.0, self._free_at - now - BURST_S))
