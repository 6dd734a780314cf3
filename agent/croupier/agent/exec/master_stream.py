"""The stream to a master that carries one command.

Rule: the agent always reads it, whatever the command does, so it learns of its end at once: the
master sends no more input than fits here before the command has taken some.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc
import grpc.aio

from croupier.agent.exec.command import Window
from croupier.agent.exec.task_exec import TaskExec
from croupier.model.errors import InvalidRequest, ProtocolViolation, Unavailable
from croupier.net.task_scope import reraise_own_cancellation
from croupier.v1 import agent_pb2 as pb

# Bytes of input that wait for the command.
INPUT_WINDOW: Final = 256 * 1024
_BROKEN: Final = (grpc.RpcError, asyncio.InvalidStateError, asyncio.CancelledError)


class StreamEnded(Unavailable):
    """The stream has ended or broken: nothing more can be sent."""


class MasterStream:
    """A stream; several tasks may send."""

    def __init__(
        self,
        call: grpc.aio.StreamStreamCall[pb.AgentServiceExecRequest, pb.AgentServiceExecResponse],
    ) -> None:
        """Use the open `call`."""
        self._call, self._turn = call, asyncio.Lock()

    async def send(self, **fields: Any) -> None:
        """Send a message with these fields; wait while the master does not read.

        Raises:
            StreamEnded: if the stream has ended.
        """
        async with self._turn:
            try:
                await self._call.write(pb.AgentServiceExecRequest(**fields))
            except _BROKEN as error:
                reraise_own_cancellation()
                raise StreamEnded(str(error)) from None

    async def finish(self) -> None:
        """Send no more; the master ends the stream.

        Raises:
            StreamEnded: if the stream has ended.
        """
        async with self._turn:
            try:
                await self._call.done_writing()
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
        """Begin empty."""
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._size = 0

    async def fill(self, stream: MasterStream, command: TaskExec) -> None:
        """Queue input, and pass windows on, until the stream has ended.

        Raises:
            ProtocolViolation: if the master sends too much.
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
                    command.resize(window_of(message.window.rows, message.window.columns))
                case kind:
                    raise ProtocolViolation(f"a message that is unknown: {kind or 'empty'}")

    async def drain(self, stream: MasterStream, command: TaskExec) -> None:
        """Write input to the command, and report what it has taken, up to the end of the input.

        Raises:
            StreamEnded: if the stream has ended.
        """
        while (data := await self._parts.get()) is not None:
            await command.write(data)
            self._size -= len(data)
            await stream.send(input_taken=len(data))
        command.end_input()


def window_of(rows: int, columns: int) -> Window:
    """Return the size of a terminal.

    Raises:
        ProtocolViolation: if no terminal can have it.
    """
    window = Window(rows, columns)
    try:
        window.check()
    except InvalidRequest as error:
        raise ProtocolViolation(str(error)) from None
    return window
