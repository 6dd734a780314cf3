"""Errors that no task handles are told once, not once each."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from croupier.process.loop_errors import LoopErrors


async def test_the_same_error_is_told_once() -> None:
    loop = asyncio.get_running_loop()
    handler = LoopErrors()
    with capture_logs() as said:
        for _ in range(50):
            handler(loop, {"message": "boom", "exception": OSError(24, "short")})
        handler(loop, {"message": "other"})
    assert [(line["message"], line["not_logged"]) for line in said] == [("boom", 0), ("other", 49)]
    assert isinstance(said[0]["exc_info"], OSError)
