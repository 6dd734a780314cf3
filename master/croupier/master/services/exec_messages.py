"""The messages of a command beside a task, checked and converted from one side to the other.

Rule: what one side sends reaches the other only if it fits the state of the command, so neither can
confuse the other.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from croupier.model import errors
from croupier.model.ids import AgentId
from croupier.model.task import Command
from croupier.model.task_checks import MAX_WORDS, check_command
from croupier.net.errors import error_from_wire
from croupier.v1 import agent_pb2, exec_pb2, operator_pb2
from croupier.v1 import framework_pb2 as framework
from croupier.wire.resources import check_count

# Bytes of one message.
MAX_CHUNK: Final = 64 * 1024
# Bytes of input that are sent before the command has taken them.
INPUT_WINDOW: Final = 256 * 1024
MAX_WINDOW: Final = 65_535
_TERMINAL_TYPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}|")
MAX_MESSAGE: Final = 400
# Errors that an agent may give its caller; any other means that it cannot run the command.
_OF_AGENTS: Final = (errors.NotFound, errors.InvalidRequest, errors.Conflict, errors.Unavailable)


class InputWindow:
    """The input that may be sent to an agent before the command has taken what was sent.

    So an agent always reads its stream, and learns of its end even if the command never reads.
    """

    def __init__(self) -> None:
        """Begin with all of `INPUT_WINDOW`."""
        self._left, self._grown = INPUT_WINDOW, asyncio.Event()

    async def take(self, size: int) -> None:
        """Wait until `size` bytes may be sent, and count them as sent."""
        while self._left < size:
            self._grown.clear()
            await self._grown.wait()
        self._left -= size

    def give_back(self, size: int) -> None:
        """Count bytes that the command has taken; raises ProtocolViolation if fewer were sent."""
        if self._left + size > INPUT_WINDOW:
            raise errors.ProtocolViolation("the command has taken more input than was sent")
        self._left += size
        self._grown.set()


def start_of(request: operator_pb2.ExecTaskRequest) -> exec_pb2.ExecStart:
    """Return the start of a command, the first request; raises InvalidRequest if malformed."""
    if request.WhichOneof("request") != "start":
        raise errors.InvalidRequest("the first message must be the start of a command")
    start = request.start
    command = start.command
    if not command.argv:
        raise errors.InvalidRequest("name the command to run")
    check_count(len(command.argv), MAX_WORDS, "words of a command")
    check_command(Command(argv=tuple(command.argv)))
    if command.HasField("terminal"):
        check_window(command.terminal)
    if not _TERMINAL_TYPE.fullmatch(command.terminal_type):
        raise errors.InvalidRequest("the type of a terminal has letters, digits and . _ + - only")
    return start


def check_window(window: exec_pb2.WindowSize) -> None:
    """Check the size of a terminal; raises InvalidRequest if no terminal has it."""
    if not all(1 <= size <= MAX_WINDOW for size in (window.rows, window.columns)):
        raise errors.InvalidRequest(f"a terminal has 1 to {MAX_WINDOW:,} rows and columns")


async def for_agent(
    requests: AsyncIterator[operator_pb2.ExecTaskRequest], command: exec_pb2.ExecCommand
) -> AsyncGenerator[agent_pb2.AgentServiceExecResponse, None]:
    """Yield what a caller sends after the start, and its end of input; raises InvalidRequest."""
    message = agent_pb2.AgentServiceExecResponse
    takes_input = command.has_input
    async for request in requests:
        match request.WhichOneof("request"):
            case "input":
                if not takes_input:
                    raise errors.InvalidRequest("input was not announced, or has ended already")
                if len(request.input) > MAX_CHUNK:
                    raise errors.InvalidRequest(
                        f"a message of input has more than {MAX_CHUNK} bytes"
                    )
                if request.input:
                    yield message(input=request.input)
            case "input_end":
                if takes_input:
                    takes_input = False
                    yield message(input_end=request.input_end)
            case "window":
                if not command.HasField("terminal"):
                    raise errors.InvalidRequest("the command has no terminal")
                check_window(request.window)
                yield message(window=request.window)
            case "start":
                raise errors.InvalidRequest("a stream runs one command")
            case _:
                raise errors.InvalidRequest("the request is empty, or of a later release")
    if takes_input:
        yield message(input_end=exec_pb2.ExecInputEnd())


async def for_caller(
    requests: AsyncIterator[agent_pb2.AgentServiceExecRequest],
    agent_id: AgentId,
    window: InputWindow,
) -> AsyncGenerator[operator_pb2.ExecTaskResponse, None]:
    """Yield what an agent sends after the id, the command's end last; raises CroupierError."""
    message = operator_pb2.ExecTaskResponse
    has_started = False
    async for request in _parsed(requests):
        kind = request.WhichOneof("request")
        if has_started != (kind not in ("started", "refused")):
            raise errors.ProtocolViolation(f"an unexpected message: {kind or 'empty'}")
        match kind:
            case "refused":
                raise _refusal(request.refused, agent_id)
            case "started":
                has_started = True
                started = exec_pb2.ExecStarted(
                    framework_id=request.started.framework_id, agent_id=agent_id
                )
                yield message(started=started)
            case "output":
                yield message(output=_checked(request.output))
            case "errors":
                yield message(errors=_checked(request.errors))
            case "input_taken":
                window.give_back(request.input_taken)
            case "end":
                yield message(end=_checked_end(request.end))
                return
            case _:
                raise errors.ProtocolViolation(f"an unexpected message: {kind or 'empty'}")


async def _parsed(
    requests: AsyncIterator[agent_pb2.AgentServiceExecRequest],
) -> AsyncGenerator[agent_pb2.AgentServiceExecRequest, None]:
    """Yield an agent's requests; one that cannot be parsed is not the caller's fault."""
    try:
        async for request in requests:
            yield request
    except errors.InvalidRequest as error:
        raise errors.ProtocolViolation(str(error)) from None


def _checked(data: bytes) -> bytes:
    if len(data) > MAX_CHUNK:
        raise errors.ProtocolViolation(f"a message of output has more than {MAX_CHUNK} bytes")
    return data


def _checked_end(end: exec_pb2.ExecEnd) -> exec_pb2.ExecEnd:
    if end.exit_code > 255 or end.signal > 127:
        raise errors.ProtocolViolation("the end of the command is malformed")
    end.message = end.message[:MAX_MESSAGE]
    return end


def _refusal(error: framework.Error, agent_id: AgentId) -> errors.CroupierError:
    found = error_from_wire(error)
    kind = type(found) if type(found) in _OF_AGENTS else errors.Unavailable
    return errors.shortened(kind(f"agent {agent_id}: {found}"))
