"""Errors that no task handles are logged once, not each time."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from croupier.process.daemon import LoopErrors


async def test_a_repeated_error_is_logged_once() -> None:
    loop = asyncio.get_running_loop()
    handler = LoopErrors()
    with capture_logs() as said:
        for _ in range(50):
            handler(loop, {"message": "boom", "exception": OSError(24, "short")})
        handler(loop, {"message": "other"})
    assert [(line["message"], line["not_logged"]) for line in said] == [("boom", 0), ("other", 49)]
    assert isinstance(said[0]["exc_info"], OSError)
