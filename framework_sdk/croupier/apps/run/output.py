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
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from typing import Final, Self

from croupier.apps.run.output_sources import OutputSources, TaskKey
from croupier.cli.printer import Printer, Sink, Stream
from croupier.model.errors import CroupierError, NotFound
from croupier.model.ids import AgentId
from croupier.net.backoff import Backoff
from croupier.net.credentials import ClientSecurity
from croupier.process.http.fetch import AgentFiles, Busy, Interrupted, LinkRefused

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
        offsets: of what is read next of each stream.
        has_run: False if the task cannot have written anything.
        has_agent: False if the task was lost with its agent.
        until: end of the attempts to read, once the task has ended.
        busy_until: the latest `until`, while the agent has too many readers.
        is_requeued: what is opened now may be the output of the task's next run.
    """

    key: TaskKey
    offsets: dict[Stream, int] = field(default_factory=lambda: {"stdout": 0, "stderr": 0})
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    has_run: bool = True
    has_agent: bool = True
    until: float = math.inf
    busy_until: float = math.inf
    is_requeued: bool = False


class Outputs:
    """Readers of the output of all tasks; `async with` stops them."""

    def __init__(
        self,
        printer: Printer,
        sources: OutputSources,
        warn: Callable[[str], None],
        find_security: Callable[[], ClientSecurity] = ClientSecurity,
    ) -> None:
        """Read from agents.

        Args:
            printer: takes the output.
            sources: of the output.
            warn: called for output that cannot be read.
            find_security: returns what names the authorities of agents with TLS.
        """
        self._printer, self.sources, self._warn = printer, sources, warn
        self._opening = asyncio.Semaphore(OPENING)
        self._agents = AgentFiles(find_security)
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
        await self._agents.close()

    def follow(self, index: int, agent_id: str, framework_id: str, task_id: str) -> None:
        """Print the output of a task's run from its beginning; only the first call counts."""
        if task_id in self._followed:
            return
        followed = FollowedTask(TaskKey(framework_id, task_id, agent_id))
        self._followed[task_id] = followed
        if not self.sources.address_of(agent_id):
            self._warn(f"{task_id}: its agent serves no output")
            return
        for stream in followed.offsets:
            reader = self._read(followed, stream, self._printer.sink(index, stream))
            task = asyncio.create_task(reader)
            self._reading.add(task)
            task.add_done_callback(self._on_read)

    def on_ended(self, task_id: str, *, has_run: bool, has_agent: bool = True) -> None:
        """Stop following the task at the end of its streams."""
        followed = self._followed.get(task_id)
        if followed is not None and not followed.ended.is_set():
            followed.has_run, followed.has_agent = has_run, has_agent
            now = asyncio.get_running_loop().time()
            followed.until = now + LAST_S if has_agent else now
            followed.busy_until = now + BUSY_S
            followed.ended.set()

    def on_requeued(self, task_id: str) -> None:
        """Stop following the run of a task that has ended; its next run is followed anew."""
        self.on_ended(task_id, has_run=True)
        if (followed := self._followed.pop(task_id, None)) is not None:
            followed.is_requeued = True

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
        _, task_id, agent_id = followed.key
        sources, looks = self.sources, 0
        while True:
            looks += ended.is_set()
            before, address = followed.offsets[stream], sources.address_of(agent_id)
            had_link = sources.needs_links
            error = await self._problem(followed, stream, sink)
            if followed.offsets[stream] > before:
                backoff.reset()
            if error is None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), LAG_S)
                if ended.is_set():
                    break
                continue
            if isinstance(error, LinkRefused):
                sources.refuse(followed.key)
                if not had_link:
                    looks -= ended.is_set()
                    continue
            if not isinstance(error, Interrupted):
                await sources.refresh(followed.key)
            if sources.address_of(agent_id) != address:
                looks = 0
                backoff.reset()
            elif ended.is_set() and self._is_lost(followed, error, looks):
                has_output = followed.offsets[stream] or followed.has_run
                if has_output or not isinstance(error, NotFound):
                    where = "" if followed.has_agent else "; the agent has left the cluster"
                    self._warn(f"{task_id}: {stream} may be cut short: {error}{where}")
                break
            await asyncio.sleep(backoff.next_s())
        await sink.finish()

    def _is_lost(self, followed: FollowedTask, error: CroupierError, looks: int) -> bool:
        """Return whether no more output of an ended task can be read."""
        if followed.is_requeued:
            return True
        if isinstance(error, NotFound) and looks >= LAST_LOOKS:
            return True
        now = asyncio.get_running_loop().time()
        if isinstance(error, Busy):
            followed.until = max(followed.until, min(now + LAST_S, followed.busy_until))
        return now >= followed.until

    async def _problem(
        self, followed: FollowedTask, stream: Stream, sink: Sink
    ) -> CroupierError | None:
        """Print what comes after the offset; return the error if the end was not reached."""
        offset, key = followed.offsets[stream], followed.key
        try:
            link = await self.sources.link_to(key, stream)
            link += f"{'&' if '?' in link else '?'}follow=1&offset={offset}"
            address = self.sources.address_of(key.agent_id)
            async with AsyncExitStack() as stack:
                async with self._opening:
                    opened = self._agents.read(AgentId(key.agent_id), address, link)
                    part = await stack.enter_async_context(opened)
                if followed.is_requeued:
                    return NotFound("the task was queued again before its output was read")
                if part.offset > offset:
                    self._warn(
                        f"{key.task_id}: {part.offset - offset} bytes of {stream} are missing: the"
                        " agent has removed them (--output-size, --output-files)"
                    )
                    followed.offsets[stream] = part.offset
                async for chunk in await stack.enter_async_context(aclosing(part.chunks)):
                    await sink.write(chunk)
                    followed.offsets[stream] += len(chunk)
        except CroupierError as error:
            return error
        return None
