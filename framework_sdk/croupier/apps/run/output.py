"""Reading the output of tasks from the HTTP servers of their agents.

Rule: every byte is printed once. A broken connection is opened again at the same offset, at the
agent's new address if it has one, and by a new link if the agent requires one. A stream is over
when it ended cleanly and the task has ended. Output that cannot be read is reported, and changes no
exit code.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import quote

import aiohttp

from croupier.apps.run.output_sources import Addresses, Links, TaskKey
from croupier.cli.printer import Printer, Sink, Stream
from croupier.model.errors import CroupierError
from croupier.model.ids import AgentId
from croupier.net.backoff import Backoff
from croupier.net.credentials import ClientSecurity
from croupier.process.http.fetch import CHUNK_BYTES, MAX_REASON, AgentHttp

# Connections that are opened at the same time; any number may stay open.
OPENING: Final = 64
# A stream may end before the update of the task's end arrives.
LAG_S: Final = 2.0
# Reading is retried this long after the task has ended, since agents restart.
LAST_S: Final = 20.0
# The same limit while the agent has too many readers.
BUSY_S: Final = 600.0
# Number of "no such output" answers after the task's end before its output counts as lost.
LAST_LOOKS: Final = 2


@dataclass(slots=True)
class FollowedTask:
    """A task whose output is read.

    Attributes:
        has_run: False if the task cannot have written anything.
        until: end of the attempts to read, once the task has ended.
        busy_until: the latest `until`, while the agent has too many readers.
    """

    agent_id: str
    framework_id: str
    task_id: str
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    has_run: bool = True
    until: float = math.inf
    busy_until: float = math.inf

    @property
    def key(self) -> TaskKey:
        """Ids of framework, task and agent."""
        return self.framework_id, self.task_id, self.agent_id

    def path(self, stream: Stream) -> str:
        """Return the path of a stream on the agent, without a link's signature."""
        return quote(f"/output/{self.framework_id}/{self.task_id}/{stream}")


@dataclass(frozen=True, slots=True)
class Problem:
    """The reason why a stream was not read to its end.

    Attributes:
        is_broken: the connection broke after it was open.
        is_unknown: the agent has no such output.
        is_busy: the agent has too many readers.
        needs_link: the agent requires a link, or a new one.
    """

    text: str
    is_broken: bool = False
    is_unknown: bool = False
    is_busy: bool = False
    needs_link: bool = False


class Outputs:
    """Readers of the output of all tasks; `async with` stops them."""

    def __init__(
        self,
        printer: Printer,
        addresses: Addresses,
        links: Links,
        warn: Callable[[str], None],
        find_security: Callable[[], ClientSecurity] = ClientSecurity,
    ) -> None:
        """Read from agents.

        Args:
            printer: takes the output.
            addresses: of agents.
            links: for agents that require them.
            warn: called for output that cannot be read.
            find_security: returns what names the authorities of agents with TLS.
        """
        self._printer, self._addresses, self._warn = printer, addresses, warn
        self._links = links
        self._opening = asyncio.Semaphore(OPENING)
        self._http = AgentHttp(find_security)
        self._followed: dict[str, FollowedTask] = {}
        self._reading: set[asyncio.Task[None]] = set()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in list(self._reading):
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        if self.failed.done():
            self.failed.exception()
        self.failed.cancel()
        await self._http.close()

    def follow(self, index: int, agent_id: str, framework_id: str, task_id: str) -> None:
        """Print the task's output from its beginning; only the first call for a task counts."""
        if task_id in self._followed:
            return
        followed = FollowedTask(agent_id, framework_id, task_id)
        self._followed[task_id] = followed
        if not self._addresses.of(agent_id):
            self._warn(f"{task_id}: its agent serves no output")
            return
        streams: tuple[Stream, ...] = ("stdout", "stderr")
        for stream in streams:
            reader = self._read(followed, stream, self._printer.sink(index, stream))
            task = asyncio.create_task(reader)
            self._reading.add(task)
            task.add_done_callback(self._on_read)

    def on_ended(self, task_id: str, *, has_run: bool) -> None:
        """Stop following the task at the end of its streams."""
        followed = self._followed.get(task_id)
        if followed is not None and not followed.ended.is_set():
            followed.has_run = has_run
            now = asyncio.get_running_loop().time()
            followed.until, followed.busy_until = now + LAST_S, now + BUSY_S
            followed.ended.set()

    async def finished(self) -> None:
        """Wait until all output is printed. If that fails, `failed` has the error."""
        while self._reading:
            await asyncio.wait(self._reading)

    def _on_read(self, task: asyncio.Task[None]) -> None:
        self._reading.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def _read(self, followed: FollowedTask, stream: Stream, sink: Sink) -> None:
        ended, backoff = followed.ended, Backoff(0.1, 2.0, random.Random())
        offset = looks = 0
        while True:
            looks += ended.is_set()
            before, address = offset, self._addresses.of(followed.agent_id)
            had_link = self._links.are_used
            offset, problem = await self._read_some(followed, stream, offset, sink)
            if offset > before:
                backoff.reset()
            if problem is not None and problem.needs_link:
                self._links.forget(followed.key)
                if not had_link:
                    looks -= ended.is_set()
                    continue
            if problem is None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), LAG_S)
                if ended.is_set():
                    break
                continue
            if not problem.is_broken:
                await self._addresses.refresh()
            if self._addresses.of(followed.agent_id) != address:
                looks = 0
                backoff.reset()
            elif ended.is_set() and self._is_lost(followed, problem, looks):
                if offset or followed.has_run or not problem.is_unknown:
                    is_gone = self._addresses.is_gone(followed.agent_id)
                    why = problem.text + ("; the agent has left the cluster" if is_gone else "")
                    self._warn(f"{followed.task_id}: {stream} may be cut short: {why}")
                break
            await asyncio.sleep(backoff.next_s())
        await sink.finish()

    def _is_lost(self, followed: FollowedTask, problem: Problem, looks: int) -> bool:
        """Return whether no more output of an ended task can be read."""
        if problem.is_unknown and looks >= LAST_LOOKS:
            return True
        now = asyncio.get_running_loop().time()
        if problem.is_busy:
            followed.until = max(followed.until, min(now + LAST_S, followed.busy_until))
        return self._addresses.is_gone(followed.agent_id) or now >= followed.until

    async def _read_some(
        self, followed: FollowedTask, stream: Stream, offset: int, sink: Sink
    ) -> tuple[int, Problem | None]:
        """Read from `offset`; return the new offset, and the problem if the end was not reached."""
        address = self._addresses.of(followed.agent_id)
        try:
            path = await self._path(followed, stream)
            if path is None:
                text = "the master gives no link: the task is unknown, or its output not for you"
                return offset, Problem(text, is_unknown=True)
            response = await self._open(followed, address, path, offset)
        except CroupierError as error:
            return offset, Problem(str(error))
        try:
            if response.status == 404:
                return offset, Problem("the agent knows no such output", is_unknown=True)
            if response.status in (401, 403):
                self._links.are_used = True
                text = (await response.content.read(MAX_REASON)).decode(errors="replace").strip()
                return offset, Problem(text or "the agent requires a link", needs_link=True)
            if response.status != 200:
                return offset, Problem(f"HTTP {response.status}", is_busy=response.status == 503)
            begin = int(response.headers.get("Croupier-Offset", offset))
            if begin > offset:
                self._warn(
                    f"{followed.task_id}: {begin - offset} bytes of {stream} are missing: the agent"
                    " has removed them (--output-size, --output-files)"
                )
                offset = begin
            while True:
                try:
                    chunk = await response.content.read(CHUNK_BYTES)
                except (aiohttp.ClientError, OSError) as error:
                    text = f"the connection broke: {str(error) or type(error).__name__}"
                    return offset, Problem(text, is_broken=True)
                if not chunk:
                    return offset, None
                await sink.write(chunk)
                offset += len(chunk)
        finally:
            response.release() if response.content.at_eof() else response.close()

    async def _path(self, followed: FollowedTask, stream: Stream) -> str | None:
        """Return the path to request, with a link's query if agents require links."""
        if not self._links.are_used:
            return followed.path(stream)
        return await self._links.of(followed.key, stream)

    async def _open(
        self, followed: FollowedTask, address: str, path: str, offset: int
    ) -> aiohttp.ClientResponse:
        query = f"{'&' if '?' in path else '?'}follow=1&offset={offset}"
        async with self._opening:
            return await self._http.get(AgentId(followed.agent_id), address, path + query)
