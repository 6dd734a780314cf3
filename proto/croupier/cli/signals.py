"""Signals that end a command: the first one gracefully, a second one at once."""

from __future__ import annotations

import asyncio
import signal
from typing import Final

# The exit code is 128 + N if signal N ended a command or a task, as in a shell.
SIGNAL_BASE: Final = 128
END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# timeout(1) signals a process and then its group. Signals within this time count as one.
SAME_SIGNAL_S: Final = 0.5


class EndSignals:
    """Handles SIGINT, SIGTERM and SIGHUP until `close`. For the main thread and its loop."""

    def __init__(self, *further: signal.Signals) -> None:
        """Handle `further` signals, too."""
        self._numbers = (*END_SIGNALS, *further)
        self._loop = asyncio.get_running_loop()
        self._is_first, self._is_second = asyncio.Event(), asyncio.Event()
        self._number: signal.Signals | None = None
        self._first_at = 0.0
        for number in self._numbers:
            self._loop.add_signal_handler(number, self._on_signal, number)

    async def first(self) -> signal.Signals:
        """Wait for the first signal."""
        await self._is_first.wait()
        assert self._number is not None
        return self._number

    async def second(self) -> None:
        """Wait for a second signal, at least half a second after the first."""
        await self._is_second.wait()

    def close(self) -> None:
        """Remove the handlers."""
        for number in self._numbers:
            self._loop.remove_signal_handler(number)

    def _on_signal(self, number: signal.Signals) -> None:
        now = self._loop.time()
        if self._number is None:
            self._number, self._first_at = number, now
            self._is_first.set()
        elif now - self._first_at >= SAME_SIGNAL_S:
            self._is_second.set()
