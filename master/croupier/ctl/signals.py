"""Signals that ask a command to end: the first politely, another one at once."""

from __future__ import annotations

import asyncio
import signal
from typing import Final

END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# `timeout` signals a process and then its whole group: that is one wish, not two.
SAME_WISH_S: Final = 0.5


class EndSignals:
    """Listens from its making until `close`. Main thread only; needs the running loop."""

    def __init__(self) -> None:
        """Take over the signals."""
        self._loop = asyncio.get_running_loop()
        self._asked, self._hurried = asyncio.Event(), asyncio.Event()
        self._first: signal.Signals | None = None
        self._first_at = 0.0
        for number in END_SIGNALS:
            self._loop.add_signal_handler(number, self._on_signal, number)

    async def asked(self) -> signal.Signals:
        """Wait for the first signal."""
        await self._asked.wait()
        assert self._first is not None
        return self._first

    async def hurried(self) -> None:
        """Wait for another signal, at least half a second after the first."""
        await self._hurried.wait()

    def close(self) -> None:
        """Give the signals back to the system."""
        for number in END_SIGNALS:
            self._loop.remove_signal_handler(number)

    def _on_signal(self, number: signal.Signals) -> None:
        now = self._loop.time()
        if self._first is None:
            self._first, self._first_at = number, now
            self._asked.set()
        elif now - self._first_at >= SAME_WISH_S:
            self._hurried.set()
