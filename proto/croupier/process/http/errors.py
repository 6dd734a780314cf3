"""Errors that aiohttp logs, as few lines of our own.

Rule: nothing that a peer has sent is logged, and malformed requests cost one line a minute.
"""

from __future__ import annotations

import logging
import time

from aiohttp.http_exceptions import HttpProcessingError

from croupier.model.log_throttle import LogThrottle
from croupier.process.logging import get_logger

EVERY_S = 60.0

_log = get_logger("croupier.http")


def error_logger() -> logging.Logger:
    """Return a logger for one aiohttp server."""
    logger = logging.Logger("croupier.http", logging.WARNING)
    logger.addHandler(_Handler())
    return logger


class _Handler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._throttle = LogThrottle(EVERY_S)

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        kind = type(error).__name__ if error is not None else record.levelname.lower()
        if not self._throttle.is_due(kind, time.monotonic()):
            return
        not_logged = self._throttle.take_suppressed()
        if isinstance(error, HttpProcessingError):
            _log.warning("http_request_malformed", kind=kind, not_logged=not_logged)
        else:
            _log.error(
                "http_request_failed", kind=kind, not_logged=not_logged, exc_info=record.exc_info
            )
