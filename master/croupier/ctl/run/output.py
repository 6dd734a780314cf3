"""Reading what tasks write, from the HTTP servers of their agents.

Rule: every byte is shown once. A connection that breaks is made again from where it broke;
a stream is over when it ended cleanly and the task is known to have ended.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

import aiohttp

from croupier.ctl.run.printer import Printer, Sink, Stream
from croupier.rpc.backoff import Backoff

# Connections that are being made at once; those that are made may stay open.
OPENING: Final = 64
CONNECT_S: Final = 5.0
# A silent connection is made anew, in case its other end is gone.
SILENCE_S: Final = 30.0
# A stream may end a little before the master tells that the task has.
LAG_S: Final = 2.0
LAST_TRIES: Final = 6
# An agent knows a task's output from its start on: what it does not know soon after the
# end, as of a task that never started, will not come.
LAST_LOOKS: Final = 2
CHUNK_BYTES: Final = 64 * 1024


class Outputs:
    """The output of all tasks. `async with` ends what still reads."""

    def __init__(self, printer: Printer, complain: Callable[[str], None]) -> None:
        """Show output by `printer`; `complain` of what cannot be read."""
        self._printer, self._complain = printer, complain
        self._opening = asyncio.Semaphore(OPENING)
        self._http: aiohttp.ClientSession | None = None
        self._ended: dict[str, asyncio.Event] = {}
        self._reading: set[asyncio.Task[None]] = set()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        """Open the client."""
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S, connect=None
            ),
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop reading."""
        for task in list(self._reading):
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        if self.failed.done():
            self.failed.exception()
        self.failed.cancel()
        if self._http is not None:
            await self._http.close()

    def follow(self, index: int, http_address: str, framework_id: str, task_id: str) -> None:
        """Show what the task writes, from its beginning to its end; once for each task."""
        if task_id in self._ended:
            return
        self._ended[task_id] = asyncio.Event()
        if not http_address:
            self._complain(f"{task_id}: its agent serves no output")
            return
        streams: tuple[Stream, ...] = ("stdout", "stderr")
        for stream in streams:
            url = f"http://{http_address}/output/{framework_id}/{task_id}/{stream}"
            reader = self._read(url, task_id, stream, self._printer.sink(index, stream))
            task = asyncio.create_task(reader)
            self._reading.add(task)
            task.add_done_callback(self._on_read)

    def on_ended(self, task_id: str) -> None:
        """The task has ended: its streams end once they are read to their end."""
        if task_id in self._ended:
            self._ended[task_id].set()

    async def drained(self) -> None:
        """Wait until all that is followed is shown; `failed` tells if that cannot be."""
        while self._reading:
            await asyncio.wait(self._reading)

    def _on_read(self, task: asyncio.Task[None]) -> None:
        self._reading.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def _read(self, url: str, task_id: str, stream: Stream, sink: Sink) -> None:
        ended = self._ended[task_id]
        backoff = Backoff(0.1, 2.0, random.Random())
        offset = tries = 0
        while True:
            if ended.is_set():
                tries += 1
            before = offset
            offset, problem = await self._read_some(url, offset, sink)
            if offset > before:
                backoff.reset()
            if problem is None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), LAG_S)
                if ended.is_set():
                    break
            elif tries >= (LAST_LOOKS if problem == NOT_FOUND else LAST_TRIES):
                if offset or problem != NOT_FOUND:
                    self._complain(f"{task_id}: {stream} may be cut short: {problem}")
                break
            else:
                await asyncio.sleep(backoff.next_s())
        await sink.finish()

    async def _read_some(self, url: str, offset: int, sink: Sink) -> tuple[int, str | None]:
        """Read on from `offset`; where that ended, and what broke it off if it did not end."""
        try:
            response = await self._opened(url, offset)
        except (aiohttp.ClientError, OSError) as error:
            return offset, f"cannot reach {url.split('/')[2]}: {_words(error)}"
        try:
            if response.status != 200:
                return offset, NOT_FOUND if response.status == 404 else f"HTTP {response.status}"
            while True:
                try:
                    chunk = await response.content.read(CHUNK_BYTES)
                except (aiohttp.ClientError, OSError) as error:
                    return offset, f"the connection broke: {_words(error)}"
                if not chunk:
                    return offset, None
                await sink.write(chunk)
                offset += len(chunk)
        finally:
            response.release() if response.content.at_eof() else response.close()

    async def _opened(self, url: str, offset: int) -> aiohttp.ClientResponse:
        assert self._http is not None
        async with self._opening:
            return await self._http.get(url, params={"follow": "1", "offset": str(offset)})


def _words(error: Exception) -> str:
    """What the error says; its kind if it says nothing, as a timeout does."""
    return str(error) or type(error).__name__


NOT_FOUND: Final = "the agent knows no such output"
