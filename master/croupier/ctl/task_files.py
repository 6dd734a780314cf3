"""Output and files of tasks: printed, and listed.

Rule: each byte is written once, and exactly, except that a terminal gets no control characters.
"""

from __future__ import annotations

import asyncio
import re
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable
from functools import partial
from typing import Final

from croupier.api.objects import Json, as_object
from croupier.cli.connection import Master, connected, run
from croupier.cli.flags import Target
from croupier.cli.printer import OutputClosed, Printer
from croupier.ctl.task_reader import OutputPart, Reader, TaskName, advising, resolve
from croupier.model.errors import InvalidRequest
from croupier.v1 import operator_pb2 as pb

_TAB_OR_LINE: Final = re.compile(r"[^\n\t]+")


def print_output(target: Target, task: TaskName, part: OutputPart, *, raw: bool) -> None:
    """Write a part of a task's output to stdout.

    With `raw`, a terminal gets it as it is.

    Raises:
        CroupierError: if no master can be reached, or the master refuses.
        BrokenPipeError: if the reader has closed our output.
    """
    task = resolve(target, task)
    if part.tail is not None and part.tail < 0:
        raise InvalidRequest("--tail must not be negative")

    async def copy() -> None:
        out = sys.stdout.buffer
        change = None if raw or not out.isatty() else terminal_text()
        printer = Printer(out, sys.stderr.buffer, prefixed=False)
        try:
            async for data in Reader(partial(connected, target), task, part).read():
                await printer.write(out, data if change is None else change(data))
        finally:
            printer.close()

    try:
        asyncio.run(copy())
    except OutputClosed:
        raise BrokenPipeError from None


def list_files(target: Target, task: TaskName, path: str) -> Json:
    """Return the entries of a directory of a task's sandbox; raises as `print_output`."""
    task = resolve(target, task)

    async def ask(master: Master) -> Json:
        return await listed(master, task, path)

    return run(target, ask)


async def listed(master: Master, task: TaskName, path: str) -> Json:
    """Return the entries of a directory of a task's sandbox.

    Raises:
        CroupierError: if the master cannot be reached, or refuses.
    """
    request = pb.ListTaskFilesRequest(
        framework_id=task.framework_id, task_id=task.task_id, agent_id=task.agent_id, path=path
    )
    async with advising(task, master):
        return as_object(await master.ask(master.service.ListTaskFiles, request))


def terminal_text() -> Callable[[bytes], bytes]:
    """Return a function that escapes control characters in successive parts of a text."""
    decoder = getincrementaldecoder("utf-8")(errors="replace")

    def escape(found: re.Match[str]) -> str:
        text = found[0]
        if text.isprintable():
            return text
        return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)

    def change(data: bytes) -> bytes:
        return _TAB_OR_LINE.sub(escape, decoder.decode(data)).encode()

    return change
