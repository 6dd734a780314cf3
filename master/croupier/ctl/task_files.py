"""Output and files of tasks, which commands read through the master.

Rule: each byte is written once, and exactly, except that a terminal gets no control characters. If
the master or the agent is lost, the command continues at the same offset with the next one. A line
on stderr says how many bytes the agent has removed already.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import sys
from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from croupier.api.files import FileList, file_list_view
from croupier.ctl.connection import Master, connected, run
from croupier.ctl.flags import Target
from croupier.ctl.run.printer import OutputClosed, Printer
from croupier.ctl.terminal import print_lines
from croupier.model.errors import InvalidRequest, NotFound, Unavailable
from croupier.model.ids import check_id
from croupier.net.backoff import Backoff
from croupier.v1 import operator_pb2 as pb

RETRY_S: Final = 0.2
RETRY_CAP_S: Final = 5.0
# Seconds for which a command that does not follow looks for a lost master or agent.
PATIENCE_S: Final = 30.0
_TAB_OR_LINE: Final = re.compile(r"[^\n\t]+")


@dataclass(frozen=True, slots=True)
class TaskName:
    """A task on the command line.

    Attributes:
        framework_id: empty if no other framework has a task of this id.
        agent_id: of a task that the master has forgotten, or empty.
    """

    task_id: str
    framework_id: str = ""
    agent_id: str = ""

    def check(self) -> None:
        """Check the form of the ids.

        Raises:
            InvalidRequest: if one is malformed.
        """
        check_id("task", self.task_id)
        for kind, given in (("framework", self.framework_id), ("agent", self.agent_id)):
            if given:
                check_id(kind, given)


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a file to read; `tail` is a number of lines, None: from the beginning."""

    path: str
    follow: bool = False
    tail: int | None = None


def print_output(target: Target, task: TaskName, part: Part, *, raw: bool) -> None:
    """Write a part of a task's output to stdout.

    With `raw`, a terminal gets it as it is.

    Raises:
        CroupierError: if no master can be reached, or the master refuses.
        BrokenPipeError: if the reader has closed our output.
    """
    task.check()
    if part.tail is not None and part.tail < 0:
        raise InvalidRequest("--tail must not be negative")

    async def copy() -> None:
        out = sys.stdout.buffer
        change = None if raw or not out.isatty() else terminal_text()
        printer = Printer(out, sys.stderr.buffer, prefixed=False)
        try:
            async for data in _Reader(target, task, part).read():
                await printer.write(out, data if change is None else change(data))
        finally:
            printer.close()

    try:
        asyncio.run(copy())
    except OutputClosed:
        raise BrokenPipeError from None


def copy_file(target: Target, task: TaskName, path: str, local: str) -> str:
    """Copy a file of a task's sandbox; return the path that it was written to.

    `local` may be a directory. A file is written under another name until it is complete.

    Raises:
        CroupierError: if no master can be reached, or the master refuses.
        OSError: if the file cannot be written.
    """
    task.check()
    if not path.strip("/"):
        raise InvalidRequest("name a file: TASK:PATH, such as 7f3c:logs/server.log")
    wanted = Path(local)
    if wanted.is_dir():
        wanted /= path.rstrip("/").rpartition("/")[2]
    # Beside it, so that the last step is a rename.
    partial = wanted.with_name(f".{wanted.name}.{os.getpid()}.part")
    try:
        with partial.open("xb") as file:
            asyncio.run(_copy(_Reader(target, task, Part(path)), file))
        partial.replace(wanted)
    finally:
        partial.unlink(missing_ok=True)
    return str(wanted)


async def _copy(reader: _Reader, file: BinaryIO) -> None:
    async for data in reader.read():
        await asyncio.to_thread(file.write, data)


def list_files(target: Target, task: TaskName, path: str) -> FileList:
    """Return the entries of a directory of a task's sandbox; raises as `print_output`."""
    task.check()
    request = pb.ListTaskFilesRequest(
        framework_id=task.framework_id, task_id=task.task_id, agent_id=task.agent_id, path=path
    )

    async def ask(master: Master) -> FileList:
        return file_list_view(await master.ask(master.service.ListTaskFiles, request))

    try:
        return run(target, ask)
    except NotFound as error:
        raise _advised(error, task) from None


class _Reader:
    """Reads a part of a file, through whichever master leads."""

    def __init__(self, target: Target, task: TaskName, part: Part) -> None:
        self._target, self._task, self._part = target, task, part
        self._offset: int | None = None
        self._is_lost = False

    async def read(self) -> AsyncGenerator[bytes, None]:
        """Yield the bytes; see `print_output` for errors."""
        backoff = Backoff(RETRY_S, RETRY_CAP_S, random.Random())
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_S
        while True:
            try:
                async with connected(self._target) as master:
                    request = self._request()
                    answers = master.watch(master.service.ReadTaskFile, request)
                    async with aclosing(answers):
                        async for answer in answers:
                            if request.HasField("limit"):
                                self._offset = answer.size
                                break
                            self._note_begin(answer)
                            if answer.data:
                                yield answer.data
                            backoff.reset()
                            until = loop.time() + PATIENCE_S
                if not request.HasField("limit") or not self._part.follow:
                    return
            except NotFound as error:
                raise _advised(error, self._task) from None
            except Unavailable as error:
                is_over = not self._part.follow and loop.time() >= until
                if self._offset is None or is_over:
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
        if self._offset is not None:
            request.offset = self._offset
        elif part.tail:
            request.tail_lines = part.tail
        elif part.tail == 0:
            # Only the size is asked for; what comes after it is read next.
            request.limit, request.follow = 0, False
        return request

    def _note_begin(self, answer: pb.ReadTaskFileResponse) -> None:
        """Print how many bytes are missing before an answer."""
        expected = self._offset
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
        self._offset = answer.offset + len(answer.data)


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


def _advised(error: NotFound, task: TaskName) -> NotFound:
    """Return the error with the next step."""
    text = str(error)
    if text.startswith("no file"):
        return NotFound(f"{text}; croupier files {task.task_id} lists the files")
    if text.startswith("no task"):
        return NotFound(f"{text}; croupier tasks lists the tasks")
    return error


def _note(text: str) -> None:
    print_lines(text, file=sys.stderr)
