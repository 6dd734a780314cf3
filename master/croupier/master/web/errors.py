"""Errors of the HTTP API: `{"error": {"code": "not-found", "message": "..."}}`.

A failure of the master itself shows nothing of the inside: its answer has an id, and the log has a
line with that id.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from croupier.master.access.rate_limits import RateExceeded
from croupier.model import errors
from croupier.model.log_throttle import LogThrottle
from croupier.process.http.connections import RETRY_AFTER_S
from croupier.process.http.routes import Requirement
from croupier.process.logging import get_logger

# The traceback of the same failure is written once within this time.
TRACEBACK_S: Final = 60.0

_log = get_logger("croupier.http")


class TooLarge(errors.InvalidRequest):
    """The body of a request is too large."""


class Forbidden(errors.PermissionDenied):
    """A request that a page of another site may have caused."""


# The first that matches. The last one of a status has the code of answers without an error.
_KINDS: Final[tuple[tuple[type[errors.CroupierError], int, str], ...]] = (
    (TooLarge, 413, "too-large"),
    (errors.InvalidRequest, 400, "invalid"),
    (errors.ProtocolViolation, 400, "invalid"),
    (errors.Unauthenticated, 401, "unauthenticated"),
    (errors.PermissionDenied, 403, "permission-denied"),
    (errors.NotFound, 404, "not-found"),
    (errors.Conflict, 409, "conflict"),
    (errors.FailedOver, 409, "conflict"),
    (errors.Removed, 409, "conflict"),
    (RateExceeded, 429, "too-many-requests"),
    (errors.TooSlow, 429, "too-many-requests"),
    (errors.NotLeader, 503, "not-leader"),
    (errors.Unavailable, 503, "unavailable"),
)
_CODES: Final = {status: code for _, status, code in _KINDS} | {
    405: "method-not-allowed",
    421: "misdirected",
    500: "internal",
}


def is_answered(error: errors.CroupierError) -> bool:
    """Return whether `error` is one that callers may get; others are failures of the master."""
    return any(isinstance(error, kind) for kind, _, _ in _KINDS)


def error_answer(error: errors.CroupierError, leader_http: str = "") -> web.Response:
    """Return the answer for `error`, if `is_answered`; `leader_http` is the leader's URL."""
    status, code = next((status, code) for kind, status, code in _KINDS if isinstance(error, kind))
    more: dict[str, str | None] = {}
    if isinstance(error, errors.NotLeader):
        more = {"leader": error.leader or None, "leader_http": leader_http or None}
    # The text may quote all of the request.
    return _answer(status, code, str(errors.shortened(error)), more)


def plain_error(status: int, message: str, **more: str) -> web.Response:
    """Return the answer with a status, a message and further keys."""
    return _answer(status, _CODES.get(status, "error"), message, more)


def _answer(status: int, code: str, message: str, more: Mapping[str, str | None]) -> web.Response:
    headers: dict[str, str] = {}
    if status in (401, 403):
        headers["WWW-Authenticate"] = Requirement.API.challenge
    if status in (429, 503):
        headers["Retry-After"] = str(RETRY_AFTER_S)
    body = json.dumps({"error": {"code": code, "message": message, **more}})
    return web.Response(text=body, status=status, headers=headers, content_type="application/json")


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
