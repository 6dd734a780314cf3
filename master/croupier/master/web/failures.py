"""Failures of the master itself while it answers a request of the API.

Rule: an answer shows nothing of the inside. It has an id, and the log has a line with that id.
"""

from __future__ import annotations

import secrets
import time
from typing import Final

from aiohttp import web

from croupier.master.web.errors import plain_error
from croupier.model.log_throttle import LogThrottle
from croupier.process.logging import get_logger

# The traceback of the same failure is written once within this time.
TRACEBACK_S: Final = 60.0

_log = get_logger("croupier.http")


class Failures:
    """Logs failures, and answers the requests."""

    def __init__(self) -> None:
        self._tracebacks = LogThrottle(TRACEBACK_S)

    def answer(self, request: web.Request, error: Exception) -> web.Response:
        """Return the answer to a request that `error` has ended."""
        request_id, kind = secrets.token_hex(6), type(error).__name__
        resource = request.match_info.route.resource
        route = "" if resource is None else resource.canonical
        is_new = self._tracebacks.is_due((kind, route), time.monotonic())
        _log.error(
            "api_request_failed",
            request_id=request_id,
            method=request.method,
            route=route,
            kind=kind,
            exc_info=error if is_new else None,
        )
        message = f"the master failed: its log has the reason, with request_id {request_id}"
        return plain_error(500, message, request_id=request_id)
