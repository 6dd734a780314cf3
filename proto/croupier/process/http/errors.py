"""What aiohttp complains of, as few lines of ours.

Rule: nothing that a peer has sent is logged, and a peer that sends nonsense costs a line a minute.
"""

from __future__ import annotations

import logging
import time

from aiohttp.http_exceptions import HttpProcessingError

from croupier.model.log_throttle import Repeats
from croupier.process.logging import get_logger

EVERY_S = 60.0

_log = get_logger("croupier.http")


def error_logger() -> logging.Logger:
    """A logger to give to aiohttp; each server has its own."""
    logger = logging.Logger("croupier.http", logging.WARNING)
    logger.addHandler(_Handler())
    return logger


class _Handler(logging.Handler):
    """Says what went wrong, and how often it was not said."""

    def __init__(self) -> None:
        super().__init__()
        self._said = Repeats(EVERY_S)
        self._unsaid = 0

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        kind = type(error).__name__ if error is not None else record.levelname.lower()
        if not self._said.is_due(kind, time.monotonic()):
            self._unsaid += 1
            return
        unsaid, self._unsaid = self._unsaid, 0
        if isinstance(error, HttpProcessingError):
            _log.warning("http_request_malformed", kind=kind, not_logged=unsaid)
        else:
            _log.error(
                "http_request_failed", kind=kind, not_logged=unsaid, exc_info=record.exc_info
            )
