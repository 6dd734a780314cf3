"""Errors that nothing of ours handles, each kind as one log line a minute."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final

from croupier.model.log_throttle import LogThrottle
from croupier.process.logging import get_logger

EVERY_S: Final = 60.0

_log = get_logger("croupier.loop")
_grpc_log = get_logger("croupier.grpc")


class LoopErrors:
    """An exception handler of a loop; asyncio would print each error with its traceback."""

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


def log_grpc_errors() -> None:
    """Log what gRPC's Python code logs, from now on."""
    logger = logging.getLogger("grpc")
    logger.propagate = False
    logger.handlers[:] = [GrpcErrors()]


class GrpcErrors(logging.Handler):
    """Logs the errors that gRPC logs.

    Rule: nothing that a peer has sent is logged. gRPC would print a traceback for each message
    that it cannot parse, and a peer can send many.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._throttle = LogThrottle(EVERY_S)

    def emit(self, record: logging.LogRecord) -> None:
        """Log one line without the text of the exception, which may quote a message."""
        error = record.exc_info[1] if record.exc_info else None
        kind = "" if error is None else type(error).__name__
        message = record.getMessage()[:200]
        if self._throttle.is_due((kind, message), time.monotonic()):
            not_logged = self._throttle.take_suppressed()
            _grpc_log.warning("grpc_error", message=message, kind=kind, not_logged=not_logged)
