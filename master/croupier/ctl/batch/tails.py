"""The last output of failed tasks, read from their agents.

Rule: output is a help for the user. What cannot be read is left out, and changes no result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from croupier.ctl.batch.machine import Task
from croupier.ctl.batch.runner import Ended
from croupier.ctl.flags import Target
from croupier.ctl.run.addresses import Addresses
from croupier.ctl.run.links import Links
from croupier.ctl.run.output import Outputs
from croupier.ctl.run.printer import Stream
from croupier.model.printable import printable

# Tasks of one run whose output is read.
MOST_TASKS: Final = 50
LINES: Final = 10
WIDTH: Final = 300
KEPT_BYTES: Final = 16 * 1024


@dataclass(slots=True)
class _Tail:
    """The last bytes of one stream."""

    data: bytes = b""

    async def write(self, chunk: bytes) -> None:
        """Keep the end of what was read."""
        self.data = (self.data + chunk)[-KEPT_BYTES:]

    async def finish(self) -> None:
        """Do nothing."""


class _TailsOf:
    """The streams of all tasks, by their number."""

    def __init__(self) -> None:
        self.streams: dict[int, dict[Stream, _Tail]] = {}

    def sink(self, index: int, stream: Stream) -> _Tail:
        """Return the end of one stream."""
        return self.streams.setdefault(index, {}).setdefault(stream, _Tail())


class Tails:
    """Reads the last output of the first tasks that fail; `async with` ends it."""

    def __init__(self, target: Target, on_read: Callable[[Task, str], None]) -> None:
        """Call `on_read` with each failed task and its last lines."""
        self._addresses = Addresses(target)
        self._links = Links(target)
        self._target = target
        self._on_read = on_read
        self._reading: set[asyncio.Task[None]] = set()
        self._begun = 0

    def read(self, ended: Ended, address: str) -> None:
        """Begin to read a failed task's output from its agent's `address`; not after too many."""
        if ended.status is None or not ended.status.agent_id or self._begun >= MOST_TASKS:
            return
        self._begun += 1
        self._addresses.learn(ended.status.agent_id, address)
        reading = asyncio.create_task(self._read(ended))
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)

    async def finished(self, timeout_s: float) -> None:
        """Wait until all is read, at most `timeout_s`."""
        if self._reading:
            await asyncio.wait(set(self._reading), timeout=timeout_s)
        for reading in list(self._reading):
            reading.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

    async def _read(self, ended: Ended) -> None:
        status = ended.status
        assert status is not None
        tails = _TailsOf()
        async with Outputs(
            tails, self._addresses, self._links, lambda _: None, self._target.security
        ) as outputs:
            outputs.follow(0, status.agent_id, status.framework_id, status.task_id)
            outputs.on_ended(status.task_id, has_run=False)
            await outputs.finished()
        streams = tails.streams.get(0, {})
        text = last_lines(streams.get("stdout", _Tail()).data, streams.get("stderr", _Tail()).data)
        if text:
            self._on_read(ended.task, text)


def last_lines(stdout: bytes, stderr: bytes) -> str:
    """Return the last lines of what a task wrote, of stderr if there are any; printable."""
    data = stderr if stderr.strip() else stdout
    lines = data.decode(errors="replace").rstrip().splitlines()[-LINES:]
    return "\n".join(printable(line.replace("\t", "    "))[:WIDTH] for line in lines)
