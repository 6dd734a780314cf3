"""Output and files of tasks, read through the master: in parts, printed, and listed.

Rule: each byte is read and written once, and exactly, except that a terminal gets no control
characters. If the master or the agent is lost, the reader continues at the same offset with the
next one. A line on stderr says how many bytes the agent has removed already.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from cyclopts import Parameter

from croupier.api.objects import Json, as_object
from croupier.cli.connection import Master, Refused, connected, run
from croupier.cli.flags import Target
from croupier.cli.printer import OutputClosed, Printer
from croupier.cli.terminal import print_lines
from croupier.ctl.lists import find_framework, id_of
from croupier.model.errors import CroupierError, InvalidRequest, NotFound, Unavailable
from croupier.model.ids import check_id
from croupier.net.backoff import Backoff
from croupier.v1 import operator_pb2 as pb

RETRY_S: Final = 0.2
RETRY_CAP_S: Final = 5.0
# Seconds for which a command that does not follow looks for a lost master or agent.
PATIENCE_S: Final = 30.0
TaskArgument = Annotated[str, Parameter(help="Task id, as `croupier tasks` shows it.")]
_TAB_OR_LINE: Final = re.compile(r"[^\n\t]+")
Connect = Callable[[], AbstractAsyncContextManager[Master]]


@dataclass(frozen=True, slots=True)
class TaskName:
    """A task on the command line.

    Attributes:
        framework_id: or its name until `resolved`; empty if no other framework has a task of
            this id.
        agent_id: or its hostname until `resolved`, of a task that the master has forgotten; or
            empty.
    """

    task_id: str
    framework_id: str = ""
    agent_id: str = ""

    async def resolved(self, master: Master) -> TaskName:
        """Return it with ids in place of names; raises as `resolve`."""
        framework_id = await id_of(master, "framework", self.framework_id)
        return TaskName(self.task_id, framework_id, await id_of(master, "agent", self.agent_id))


def resolve(target: Target, task: TaskName) -> TaskName:
    """Return the task with ids in place of names; raises InvalidRequest, or as `id_of`."""
    check_id("task", task.task_id)
    if not (task.framework_id or task.agent_id):
        return task
    return run(target, task.resolved)


@dataclass(frozen=True, slots=True)
class OutputPart:
    """The part of a file to read; `tail` is a number of lines, None: from the beginning."""

    path: str
    follow: bool = False
    tail: int | None = None


class Reader:
    """Reads a part of a file, through whichever master leads.

    Attributes:
        offset: of the next byte; None before the first answer.
        size: of the file when it was opened first.
    """

    def __init__(self, connect: Connect, task: TaskName, part: OutputPart) -> None:
        """Read over connections that `connect` opens."""
        self._connect, self._task, self._part = connect, task, part
        self.offset: int | None = None
        self.size = 0
        self._is_lost = False

    async def read(self) -> AsyncGenerator[bytes, None]:
        """Yield the bytes; raises CroupierError if no master can be reached, or it refuses."""
        backoff = Backoff(RETRY_S, RETRY_CAP_S, random.Random())
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_S
        while True:
            try:
                async with self._connect() as master:
                    request = self._request()
                    answers = master.answers(master.service.ReadTaskFile(request))
                    async with aclosing(answers), advising(self._task, master):
                        async for answer in answers:
                            if request.HasField("limit"):
                                self.offset = answer.size
                                break
                            self._note_begin(answer)
                            if answer.data:
                                yield answer.data
                            backoff.reset()
                            until = loop.time() + PATIENCE_S
                if not request.HasField("limit") or not self._part.follow:
                    return
            except Unavailable as error:
                is_over = not self._part.follow and loop.time() >= until
                if self.offset is None or is_over:
                    raise
                if not self._is_lost:
                    _note(f"the connection was lost ({error}); trying again")
                self._is_lost = True
                await asyncio.sleep(backoff.next_s())

    def _request(self) -> pb.ReadTaskFileRequest:
        task, part = self._task, self._part
        request = pb.ReadTaskFileRequest(
            framework_id=task.framework_id,
            task_id=task.task_id,
            agent_id=task.agent_id,
            path=part.path,
            follow=part.follow,
        )
        if self.offset is not None:
            request.offset = self.offset
        elif part.tail:
            request.tail_lines = part.tail
        elif part.tail == 0:
            # Only the size is asked for; what comes after it is read next.
            request.limit, request.follow = 0, False
        return request

    def _note_begin(self, answer: pb.ReadTaskFileResponse) -> None:
        """Print how many bytes are missing before an answer."""
        expected = self.offset
        if expected is None:
            self.size = answer.size
        if expected is None and self._part.tail is None:
            expected = 0
        if expected is not None and answer.offset > expected:
            _note(
                f"{answer.offset - expected} bytes are missing here: the agent keeps only the last"
                " output of a task (--output-size, --output-files)"
            )
        if self._is_lost:
            self._is_lost = False
            _note("connected again")
        self.offset = answer.offset + len(answer.data)


@asynccontextmanager
async def advising(task: TaskName, master: Master) -> AsyncIterator[None]:
    """Add the next step to a refusal of a request about `task` by the master."""
    try:
        yield
    except (NotFound, Refused) as error:
        raise await _advised(error, task, master) from None


async def _advised(error: CroupierError, task: TaskName, master: Master) -> CroupierError:
    """Return a refusal by the master, with the next step."""
    text = str(error)
    if text.startswith("no file "):
        return NotFound(f"{text}; croupier files {task.task_id} lists the files")
    if text.startswith("no task"):
        unknown = await _framework_problem(task.framework_id, master)
        return NotFound(f"{text}; {unknown or 'croupier tasks lists the tasks'}")
    if text.startswith("several frameworks have a task") and text.endswith("name one"):
        return Refused(f"{text} by --framework")
    return error


async def _framework_problem(framework_id: str, master: Master) -> str:
    """Return that no framework has this id; empty if one has it, or if that is unknown."""
    try:
        if framework_id:
            await find_framework(master, framework_id)
    except NotFound as error:
        return str(error)
    except CroupierError:
        pass
    return ""


def _note(text: str) -> None:
    print_lines(text, file=sys.stderr)


def print_output(target: Target, task: TaskName, part: OutputPart, *, raw: bool) -> None:
    """Write a part of a task's output to stdout.

    With `raw`, a terminal gets it as it is. Raises CroupierError if no master can be reached, or
    the master refuses; BrokenPipeError if the reader has closed our output.
    """
    task = resolve(target, task)
    if part.tail is not None and part.tail < 0:
        raise InvalidRequest("--tail must not be negative")

    async def copy() -> None:
        out = sys.stdout.buffer
        change = None if raw or not out.isatty() else terminal_text()
        printer = Printer(out, sys.stderr.buffer, prefixed=False)
        async for data in Reader(partial(connected, target), task, part).read():
            await printer.write(out, data if change is None else change(data))

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
    """Return the entries of a directory of a task's sandbox; raises as `Master.ask`."""
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
