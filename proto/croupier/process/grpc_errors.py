"""Errors that gRPC logs, as few lines of our own.

Rule: nothing that a peer has sent is logged. gRPC would print a traceback for each message that it
cannot parse, and a peer can send many.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from croupier.model.log_throttle import LogThrottle
from croupier.process.logging import get_logger

EVERY_S: Final = 60.0
_NAME: Final = "grpc"

_log = get_logger("croupier.grpc")


def log_grpc_errors() -> None:
    """Log what gRPC's Python code logs, from now on."""
    logger = logging.getLogger(_NAME)
    logger.propagate = False
    logger.handlers[:] = [GrpcErrors()]


class GrpcErrors(logging.Handler):
    """Logs an error of one kind once a minute."""

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
            _log.warning("grpc_error", message=message, kind=kind, not_logged=not_logged)
