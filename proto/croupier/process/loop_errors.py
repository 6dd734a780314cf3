"""Errors that no task handles, as few lines: asyncio would print each with its traceback."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from croupier.model.log_throttle import Repeats
from croupier.process.logging import get_logger

EVERY_S: Final = 60.0

_log = get_logger("croupier.loop")


class LoopErrors:
    """An exception handler of a loop; the same error is told once a minute."""

    def __init__(self) -> None:
        """Nothing was told yet."""
        self._said = Repeats(EVERY_S)
        self._unsaid = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Tell of an error that no task took."""
        error, message = context.get("exception"), str(context.get("message", ""))
        kind = type(error).__name__ if isinstance(error, BaseException) else ""
        if not self._said.is_due((kind, message[:80]), loop.time()):
            self._unsaid += 1
            return
        unsaid, self._unsaid = self._unsaid, 0
        told = error if isinstance(error, BaseException) else None
        _log.error(
            "unhandled_error", message=message[:400], kind=kind, not_logged=unsaid, exc_info=told
        )
