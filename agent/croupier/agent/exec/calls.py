"""Commands that masters order: each has a stream, which the agent opens to the master.

Rule: a command is started only once the master has answered on its stream, so that it has a caller;
it ends with the stream. The stream has the agent's own credential. The agent always reads it,
whatever the command does, so it learns of its end at once: the master sends no more input than fits
here before the command has taken some.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

import grpc
import grpc.aio

from croupier.agent.core.tasks import Key
from croupier.agent.exec.streams import Stream, check_window
from croupier.agent.exec.task_exec import TaskExec
from croupier.model.errors import CroupierError, ProtocolViolation, Unavailable, shortened
from croupier.model.ids import FrameworkId, TaskId
from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity
from croupier.net.errors import error_to_wire
from croupier.net.task_scope import end, reraise_own_cancellation, until_one_ends
from croupier.net.transport import make_channel
from croupier.process.logging import get_logger
from croupier.v1 import agent_pb2 as pb
from croupier.v1 import exec_pb2
from croupier.v1.agent_pb2_grpc import AgentServiceStub

# Bytes of input that wait for the command.
INPUT_WINDOW: Final = 256 * 1024
_BROKEN: Final = (grpc.RpcError, asyncio.InvalidStateError, asyncio.CancelledError)
# More than commands, since a refusal has a stream too.
MOST: Final = 128
# Time to connect and to get the command, and to send a refusal.
OPEN_S: Final = 10.0
_log = get_logger("croupier.agent")
_FIELDS: Final = {Stream.OUTPUT: "output", Stream.ERRORS: "errors"}


class StreamEnded(Unavailable):
    """The stream has ended or broken: nothing more can be sent."""


class MasterStream:
    """A stream; several tasks may send."""

    def __init__(
        self,
        call: grpc.aio.StreamStreamCall[pb.AgentServiceExecRequest, pb.AgentServiceExecResponse],
    ) -> None:
        self._call, self._turn = call, asyncio.Lock()

    async def send(self, **fields: Any) -> None:
        """Send a message with these fields; wait while the master does not read.

        Raises StreamEnded if the stream has ended.
        """
        await self._do(lambda: self._call.write(pb.AgentServiceExecRequest(**fields)))

    async def finish(self) -> None:
        """Send no more; the master ends the stream. Raises StreamEnded if the stream has ended."""
        await self._do(self._call.done_writing)

    async def _do(self, write: Callable[[], Awaitable[None]]) -> None:
        async with self._turn:
            try:
                await write()
            except _BROKEN as error:
                reraise_own_cancellation()
                raise StreamEnded(str(error)) from None

    async def next(self) -> pb.AgentServiceExecResponse | None:
        """Return the next message; None if the stream has ended."""
        try:
            message = await self._call.read()
        except _BROKEN:
            reraise_own_cancellation()
            return None
        return message if isinstance(message, pb.AgentServiceExecResponse) else None


class InputQueue:
    """The input of one command on its way from the stream to the command."""

    def __init__(self) -> None:
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._size = 0

    async def fill(self, stream: MasterStream, command: TaskExec) -> None:
        """Queue input, and pass windows on, until the stream has ended.

        Raises ProtocolViolation if the master sends too much.
        """
        while (message := await stream.next()) is not None:
            match message.WhichOneof("response"):
                case "input":
                    self._size += len(message.input)
                    if self._size > INPUT_WINDOW:
                        raise ProtocolViolation("the master sent more input than fits")
                    self._parts.put_nowait(message.input)
                case "input_end":
                    self._parts.put_nowait(None)
                case "window":
                    check_window(message.window)
                    command.streams.resize(message.window)
                case kind:
                    raise ProtocolViolation(f"a message that is unknown: {kind or 'empty'}")

    async def drain(self, stream: MasterStream, command: TaskExec) -> NoReturn:
        """Write input to the command, while the bytes that it takes can be reported."""
        with suppress(StreamEnded):
            while (data := await self._parts.get()) is not None:
                await command.streams.write(data)
                self._size -= len(data)
                await stream.send(input_taken=len(data))
            command.streams.end_input()
        await asyncio.Event().wait()  # the master ends the stream
        raise AssertionError("it waits without end")


class ExecCalls:
    """The streams of commands."""

    def __init__(
        self,
        start: Callable[[Key, exec_pb2.ExecCommand], Awaitable[TaskExec]],
        security: Callable[[], ClientSecurity],
        count: Callable[[str], None],
    ) -> None:
        """Serve commands that `start` starts, and `count` them by their outcomes.

        `security` returns the present credential of the agent.
        """
        self._start, self._security, self._count = start, security, count
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def open(self, exec_id: str, master: Address) -> None:
        """Open a stream to the master that ordered it; too many are left out."""
        if len(self._tasks) >= MOST:
            self._count("refused")
            _log.warning("exec_left_out", streams=MOST)
            return
        task = asyncio.create_task(self._serve(exec_id, master), name="exec")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all commands and their streams."""
        await end(*self._tasks)

    async def _serve(self, exec_id: str, master: Address) -> None:
        try:
            async with make_channel(master, self._security()) as channel:
                stream = MasterStream(AgentServiceStub(channel).Exec())
                async with asyncio.timeout(OPEN_S):
                    await stream.send(exec_id=exec_id)
                    first = await stream.next()
                if first is None or not first.HasField("start"):
                    raise StreamEnded("the master has no use for it any more")
                await self._run(stream, first.start)
        except (CroupierError, TimeoutError) as error:
            _log.info("exec_broken", master=str(master), error=str(error) or "no answer")

    async def _run(self, stream: MasterStream, start: exec_pb2.ExecStart) -> None:
        key = FrameworkId(start.framework_id), TaskId(start.task_id)
        try:
            check_window(start.command.terminal)
            command = await self._start(key, start.command)
        except CroupierError as error:
            self._count("refused")
            _log.info("exec_refused", framework_id=key[0], task_id=key[1], error=str(error))
            async with asyncio.timeout(OPEN_S):
                await stream.send(refused=error_to_wire(shortened(error)))
                await stream.finish()
                await stream.next()
            return
        _log.info("exec_started", framework_id=key[0], task_id=key[1])
        is_over = asyncio.Event()
        try:
            await stream.send(started=exec_pb2.ExecStarted(framework_id=start.framework_id))
            queue = InputQueue()
            await until_one_ends(
                _pass_output(stream, command, is_over),
                queue.drain(stream, command),
                queue.fill(stream, command),
            )
        finally:
            outcome = "ended" if is_over.is_set() else "cancelled"
            self._count(outcome)
            await command.close()
            _log.info("exec_ended", framework_id=key[0], task_id=key[1], outcome=outcome)


async def _pass_output(stream: MasterStream, command: TaskExec, is_over: asyncio.Event) -> NoReturn:
    """Send the output and the end of a command; set `is_over` once it has ended."""
    async for kind, data in command.output():
        await stream.send(**{_FIELDS[kind]: data})
    ended = await command.wait()
    is_over.set()
    await command.close()
    await stream.send(end=ended)
    await stream.finish()
    await asyncio.Event().wait()  # the master ends the stream
    raise AssertionError("it waits without end")
