"""The last output of failed tasks.

Rule: output is a help for the user. What cannot be read is left out, and changes no result.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from croupier.apps.batch.runner import FailedAttempt, Runner
from croupier.model.printable import printable
from croupier.sdk import CroupierError

# Tasks of one run whose output is read.
MOST_TASKS: Final = 50
LINES: Final = 10
WIDTH: Final = 300


class Tails:
    """Reads the last output of the first tasks that fail."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._reading: list[asyncio.Task[None]] = []

    def read(self, ended: FailedAttempt) -> None:
        """Begin to read a failed task's output; not after too many."""
        if ended.status is None or not ended.status.agent_id or len(self._reading) >= MOST_TASKS:
            return
        self._reading.append(self._runner.own(self._read(ended, ended.status.task_id)))

    async def finished(self, timeout_s: float) -> None:
        """Wait until all is read, at most `timeout_s`."""
        if self._reading:
            await asyncio.wait(self._reading, timeout=timeout_s)

    async def _read(self, ended: FailedAttempt, task_id: str) -> None:
        with suppress(CroupierError):
            stdout, stderr = [
                await self._runner.read_output(task_id, stderr=is_stderr, tail=LINES)
                for is_stderr in (False, True)
            ]
            text = last_lines(stdout, stderr)
            if text:
                self._runner.keep_output(ended.task, text)


def last_lines(stdout: bytes, stderr: bytes) -> str:
    """Return the last lines of what a task wrote, of stderr if there are any; printable."""
    data = stderr if stderr.strip() else stdout
    lines = data.decode(errors="replace").rstrip().splitlines()[-LINES:]
    return "\n".join(printable(line.replace("\t", "    "))[:WIDTH] for line in lines)
