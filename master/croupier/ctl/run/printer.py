"""Writing the output of tasks to our own, without ever blocking the loop.

Rule: one thread writes, in order; who writes waits for it, so a reader that is slow slows
the reading from agents and nothing piles up.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from typing import BinaryIO, Literal

from croupier.ctl.run.prefix import LinePrefixer, prefix_of

Stream = Literal["stdout", "stderr"]


class OutputClosed(Exception):
    """Whoever read our output has gone."""


class Printer:
    """Our stdout and stderr, shared by all copies."""

    def __init__(self, out: BinaryIO, err: BinaryIO, *, prefixed: bool) -> None:
        """Write to `out` and `err`; `prefixed` tells the lines of copies apart."""
        self._files = {"stdout": out, "stderr": err}
        self._prefixed = prefixed
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A daemon: a reader that never reads must not keep us from ending.
        self._thread = threading.Thread(target=self._work, name="printer", daemon=True)
        self._thread.start()

    def sink(self, index: int, stream: Stream) -> Sink:
        """Where one stream of one copy goes."""
        file = self._files[stream]
        coloured = file.isatty() and "NO_COLOR" not in os.environ
        prefix = prefix_of(index, coloured=coloured)
        return Sink(self, file, LinePrefixer(prefix) if self._prefixed else None)

    def close(self) -> None:
        """End the thread once it has written what it was given."""
        self._jobs.put(None)

    async def write(self, file: BinaryIO, data: bytes) -> None:
        """Write all of `data`.

        Raises:
            OutputClosed: if nobody reads it any more.
        """
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()

        def write() -> None:
            error: Exception | None = None
            try:
                file.write(data)
                file.flush()
            except (OSError, ValueError) as failure:
                error = OutputClosed(str(failure))
            loop.call_soon_threadsafe(_settle, written, error)

        self._jobs.put(write)
        await written

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except RuntimeError:
                return  # the loop is closed: nobody waits any more


class Sink:
    """One stream of one copy, on its way to our output."""

    def __init__(self, printer: Printer, file: BinaryIO, prefixer: LinePrefixer | None) -> None:
        """Write to `file`, through `prefixer` if there is one."""
        self._printer, self._file, self._prefixer = printer, file, prefixer

    async def write(self, chunk: bytes) -> None:
        """Show what was read.

        Raises:
            OutputClosed: if nobody reads it any more.
        """
        data = self._prefixer.feed(chunk) if self._prefixer else chunk
        if data:
            await self._printer.write(self._file, data)

    async def finish(self) -> None:
        """The stream has ended: show what waits for the end of its line.

        Raises:
            OutputClosed: if nobody reads it any more.
        """
        data = self._prefixer.finish() if self._prefixer else b""
        if data:
            await self._printer.write(self._file, data)


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
