"""Reading what tasks write, from the HTTP servers of their agents.

Rule: every byte is shown once. A connection that breaks is made again from where it broke, at
the agent's new address if it has one; a stream is over when it ended cleanly and the task is
known to have ended. Output that cannot be had is reported, and changes no exit code.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self

import aiohttp

from croupier.ctl.run.addresses import Addresses
from croupier.ctl.run.printer import Printer, Sink, Stream
from croupier.net.backoff import Backoff

# Connections that are being made at once; those that are made may stay open.
OPENING: Final = 64
CONNECT_S: Final = 5.0
# A silent connection is made anew, in case its other end is gone.
SILENCE_S: Final = 30.0
# A stream may end a little before the master tells that the task has.
LAG_S: Final = 2.0
# How long output is still tried for once its task has ended: agents restart meanwhile.
LAST_S: Final = 20.0
# The same while the agent answers that it has too many readers: it has the output.
BUSY_S: Final = 600.0
# An agent that answers knows a task's output from its start on: what it does not know soon
# after the end will not come.
LAST_LOOKS: Final = 2
CHUNK_BYTES: Final = 64 * 1024


@dataclass(slots=True)
class Followed:
    """A task whose output is read.

    Attributes:
        has_run: False if the task is known to have written nothing.
        until: when to give up what cannot be read, once it has ended.
        busy_until: the latest that `until` is put off to while the agent has too many readers.
    """

    agent_id: str
    framework_id: str
    task_id: str
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    has_run: bool = True
    until: float = math.inf
    busy_until: float = math.inf

    def url(self, address: str, stream: Stream) -> str:
        """Where the agent at `address` serves a stream of it."""
        return f"http://{address}/output/{self.framework_id}/{self.task_id}/{stream}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a stream was not read to its end.

    Attributes:
        is_broken: the connection stood, and broke.
        is_unknown: the agent answers that it has no such output.
        is_busy: the agent answers that it has too many readers.
    """

    text: str
    is_broken: bool = False
    is_unknown: bool = False
    is_busy: bool = False


class Outputs:
    """The output of all tasks. `async with` ends what still reads."""

    def __init__(
        self, printer: Printer, addresses: Addresses, complain: Callable[[str], None]
    ) -> None:
        """Show output by `printer`; `complain` of what cannot be read."""
        self._printer, self._addresses, self._complain = printer, addresses, complain
        self._opening = asyncio.Semaphore(OPENING)
        self._http: aiohttp.ClientSession | None = None
        self._followed: dict[str, Followed] = {}
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

    def follow(self, index: int, agent_id: str, framework_id: str, task_id: str) -> None:
        """Show what the task writes, from its beginning to its end; once for each task."""
        if task_id in self._followed:
            return
        followed = Followed(agent_id, framework_id, task_id)
        self._followed[task_id] = followed
        if not self._addresses.of(agent_id):
            self._complain(f"{task_id}: its agent serves no output")
            return
        streams: tuple[Stream, ...] = ("stdout", "stderr")
        for stream in streams:
            reader = self._read(followed, stream, self._printer.sink(index, stream))
            task = asyncio.create_task(reader)
            self._reading.add(task)
            task.add_done_callback(self._on_read)

    def on_ended(self, task_id: str, *, has_run: bool) -> None:
        """The task has ended: its streams end once they are read to their end.

        A task that has not run wrote nothing, so nothing of it is missed.
        """
        followed = self._followed.get(task_id)
        if followed is not None and not followed.ended.is_set():
            followed.has_run = has_run
            now = asyncio.get_running_loop().time()
            followed.until, followed.busy_until = now + LAST_S, now + BUSY_S
            followed.ended.set()

    async def drained(self) -> None:
        """Wait until all that is followed is shown; `failed` tells if that cannot be."""
        while self._reading:
            await asyncio.wait(self._reading)

    def _on_read(self, task: asyncio.Task[None]) -> None:
        self._reading.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def _read(self, followed: Followed, stream: Stream, sink: Sink) -> None:
        ended, backoff = followed.ended, Backoff(0.1, 2.0, random.Random())
        offset = looks = 0
        while True:
            looks += ended.is_set()
            before, address = offset, self._addresses.of(followed.agent_id)
            offset, problem = await self._read_some(followed.url(address, stream), offset, sink)
            if offset > before:
                backoff.reset()
            if problem is None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), LAG_S)
                if ended.is_set():
                    break
                continue
            if not problem.is_broken:
                await self._addresses.ask_again()
            if self._addresses.of(followed.agent_id) != address:
                looks = 0
                backoff.reset()
            elif ended.is_set() and self._is_hopeless(followed, problem, looks):
                if offset or followed.has_run or not problem.is_unknown:
                    told = f"{followed.task_id}: {stream} may be cut short"
                    self._complain(f"{told}: {self._words(followed, problem)}")
                break
            await asyncio.sleep(backoff.next_s())
        await sink.finish()

    def _is_hopeless(self, followed: Followed, problem: Problem, looks: int) -> bool:
        """Whether more output of a task that has ended is not to be expected."""
        if problem.is_unknown and looks >= LAST_LOOKS:
            return True
        now = asyncio.get_running_loop().time()
        if problem.is_busy:
            followed.until = max(followed.until, min(now + LAST_S, followed.busy_until))
        return self._addresses.is_gone(followed.agent_id) or now >= followed.until

    def _words(self, followed: Followed, problem: Problem) -> str:
        is_gone = self._addresses.is_gone(followed.agent_id)
        return problem.text + ("; the agent has left the cluster" if is_gone else "")

    async def _read_some(self, url: str, offset: int, sink: Sink) -> tuple[int, Problem | None]:
        """Read on from `offset`; where that ended, and what broke it off if it did not end."""
        try:
            response = await self._opened(url, offset)
        except (aiohttp.ClientError, OSError) as error:
            return offset, Problem(f"cannot reach {url.split('/')[2]}: {_reason(error)}")
        try:
            if response.status == 404:
                return offset, Problem("the agent knows no such output", is_unknown=True)
            if response.status != 200:
                return offset, Problem(f"HTTP {response.status}", is_busy=response.status == 503)
            while True:
                try:
                    chunk = await response.content.read(CHUNK_BYTES)
                except (aiohttp.ClientError, OSError) as error:
                    text = f"the connection broke: {_reason(error)}"
                    return offset, Problem(text, is_broken=True)
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


def _reason(error: Exception) -> str:
    """What the error says; its kind if it says nothing, as a timeout does."""
    return str(error) or type(error).__name__
