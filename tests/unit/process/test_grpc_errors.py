"""Errors that gRPC logs are few lines, without what a peer has sent."""

from __future__ import annotations

import logging

import pytest
from structlog.testing import capture_logs

from croupier.process.daemon import log_grpc_errors


def test_a_repeated_error_is_one_line_without_its_traceback(
    capfd: pytest.CaptureFixture[str],
) -> None:
    logger = logging.getLogger("grpc")
    before = logger.handlers[:], logger.propagate
    log_grpc_errors()
    log_grpc_errors()
    try:
        with capture_logs() as said:
            for _ in range(50):
                try:
                    raise ValueError("what the peer sent")
                except ValueError:
                    logging.getLogger("grpc._common").exception("Exception deserializing message!")
    finally:
        logger.handlers[:], logger.propagate = before
    assert said == [
        {
            "event": "grpc_error",
            "log_level": "warning",
            "message": "Exception deserializing message!",
            "kind": "ValueError",
            "not_logged": 0,
        }
    ]
    assert capfd.readouterr() == ("", "")
