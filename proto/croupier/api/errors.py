"""Errors of the HTTP API."""

from __future__ import annotations

from typing import TypedDict


class _Error(TypedDict):
    code: str
    message: str


class Error(_Error, total=False):
    """Why a request was refused.

    Attributes:
        code: one of a fixed list of words, such as `not-found`.
        message: for people.
        leader: of `not-leader`: HOST:PORT of the gRPC of the master that leads; None: unknown.
        leader_http: of `not-leader`: the URL of its page and HTTP API; None: unknown.
        request_id: of `internal`: the line of the master's log with the reason has it, too.
    """

    leader: str | None
    leader_http: str | None
    request_id: str


class ErrorAnswer(TypedDict):
    """The answer to a request that was refused."""

    error: Error
