"""Standard input, read without a thread and without a change of its file, which others share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import Final

CHUNK: Final = 64 * 1024


async def parts_of(fd: int) -> AsyncGenerator[bytes, None]:
    """Yield what comes from a file, a pipe or a terminal, until it ends or cannot be read."""
    try:
        while data := await _read(fd):
            yield data
    except OSError:
        # It is closed, or the terminal is gone: that is the end of the input.
        return


async def _read(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    while True:
        ready = loop.create_future()
        try:
            loop.add_reader(fd, _set, ready)
        except PermissionError:
            # A regular file cannot be waited for, and need not be.
            return await asyncio.to_thread(os.read, fd, CHUNK)
        try:
            await ready
        finally:
            loop.remove_reader(fd)
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            continue


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
