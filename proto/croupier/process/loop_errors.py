"""Errors that no task handles, as few log lines; asyncio would print each with its traceback."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from croupier.model.log_throttle import LogThrottle
from croupier.process.logging import get_logger

EVERY_S: Final = 60.0

_log = get_logger("croupier.loop")


class LoopErrors:
    """An exception handler of a loop; it logs the same error once a minute."""

    def __init__(self) -> None:
        self._throttle = LogThrottle(EVERY_S)

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error that no task handled."""
        raised, message = context.get("exception"), str(context.get("message", ""))
        error = raised if isinstance(raised, BaseException) else None
        kind = "" if error is None else type(error).__name__
        if self._throttle.is_due((kind, message[:80]), loop.time()):
            _log.error(
                "unhandled_error",
                message=message[:400],
                kind=kind,
                not_logged=self._throttle.take_suppressed(),
                exc_info=error,
            )
