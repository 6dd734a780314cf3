"""ExecutorService: executors that speak Croupier's own protocol, over a unix socket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, assert_never

import grpc.aio

from croupier.agent.core import effects as fx
from croupier.agent.core.events import ExecutorUpdated
from croupier.agent.core.on_executor import REPORTABLE
from croupier.agent.executors.streams import MOST_STREAMS, Message, Stream, Streams
from croupier.agent.isolation.isolator import Launch
from croupier.model.errors import CroupierError, InvalidRequest, ProtocolViolation, Unavailable
from croupier.model.executor import SOCKET_VARIABLE, TOKEN_VARIABLE
from croupier.model.ids import MAX_ID_BYTES, TaskId
from croupier.model.task import MAX_MESSAGE, TaskState
from croupier.model.task_checks import check_news
from croupier.net.errors import error_to_wire
from croupier.net.task_scope import end
from croupier.net.transport import connection_share, make_server, socket_target
from croupier.v1 import executor_pb2 as pb
from croupier.v1 import task_pb2
from croupier.v1.executor_pb2_grpc import (
    ExecutorServiceServicer,
    add_ExecutorServiceServicer_to_server,
)
from croupier.wire.task import labels_from_wire, task_to_wire

# The time to send REGISTER.
REGISTER_S: Final = 10.0
MOST_LISTED: Final = 100_000
# Any user of the machine may connect, and a call takes 24 KiB until it has registered. So further
# connections are closed, and each has one call at a time.
MOST_CONNECTIONS: Final = 2 * MOST_STREAMS
SOCKET: Final = "socket"
_STATES: Final = {int(state): state for state in REPORTABLE}

_Context = grpc.aio.ServicerContext[
    AsyncIterator[pb.ExecutorServiceConnectRequest],
    AsyncIterator[pb.ExecutorServiceConnectResponse],
]


class ExecutorServer:
    """The server on the socket, with the `streams` of all executors; it starts with the first."""

    def __init__(
        self, streams: Streams, further: Callable[[Launch, str], Mapping[str, str]] | None = None
    ) -> None:
        """`further` returns more variables of an executor, which has a token."""
        self.streams, self._further = streams, further or (lambda *_: {})
        self._server: grpc.aio.Server | None = None
        self._starting: asyncio.Task[None] | None = None
        self._directory = -1

    @property
    def path(self) -> Path:
        """The path of the socket."""
        return self.streams.directory / SOCKET

    def start(self) -> None:
        """Listen, unless it does already; raises OSError if the socket cannot be made."""
        if self._server is not None:
            return
        self.streams.prepare()
        self.path.unlink(missing_ok=True)
        server = make_server(min(MOST_CONNECTIONS, connection_share()), most_calls=1)
        add_ExecutorServiceServicer_to_server(_Service(self.streams), server)
        if self._directory < 0:
            self._directory = os.open(self.streams.directory, os.O_PATH | os.O_CLOEXEC)
        try:
            server.add_insecure_port(socket_target(self.path, self._directory))
            self.path.chmod(0o666)
        except RuntimeError as error:
            raise OSError(0, f"cannot listen on {self.path}") from error
        self._server = server
        self._starting = asyncio.create_task(server.start())

    def introduced(self, launch: Launch) -> Launch:
        """Return the launch of an executor with what it needs to reach this agent.

        Raises Unavailable if the agent cannot listen for it.
        """
        try:
            self.start()
        except OSError as error:
            raise Unavailable(f"cannot listen for executors: {error.strerror}") from error
        own = {
            SOCKET_VARIABLE: str(self.path),
            TOKEN_VARIABLE: self.streams.token_of(launch.run),
            **self._further(launch, self.streams.token_of(launch.run)),
        }
        return replace(
            launch,
            environment={**launch.environment, **own},
            read_only=(*launch.read_only, str(self.streams.directory)),
        )

    async def close(self) -> None:
        """End all streams; the executors connect to the next agent."""
        if self._starting is not None:
            await asyncio.wait([self._starting])
        if self._server is not None:
            await self._server.stop(None)
        if self._directory >= 0:
            os.close(self._directory)


class _Service(ExecutorServiceServicer):
    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    async def Connect(
        self, request_iterator: AsyncIterator[pb.ExecutorServiceConnectRequest], context: _Context
    ) -> AsyncIterator[pb.ExecutorServiceConnectResponse]:
        """Serve the stream of an executor until one of the two ends it."""
        stream: Stream | None = None
        reading: asyncio.Task[None] | None = None
        try:
            stream = await self._register(request_iterator)
            reading = asyncio.create_task(self._read(stream, request_iterator))
            while (message := await stream.take()) is not None:
                yield _response(message)
            if reading.done():
                reading.result()
            if stream.error:
                raise Unavailable(stream.error)
        except CroupierError as error:
            yield pb.ExecutorServiceConnectResponse(error=error_to_wire(error))
        finally:
            if stream is not None:
                self._streams.ended(stream)
            if reading is not None:
                await end(reading)

    async def _register(self, requests: AsyncIterator[pb.ExecutorServiceConnectRequest]) -> Stream:
        try:
            async with asyncio.timeout(REGISTER_S):
                first = await anext(requests)
        except (TimeoutError, StopAsyncIteration):
            raise ProtocolViolation("the first request must be REGISTER") from None
        if not first.HasField("register"):
            raise ProtocolViolation("the first request must be REGISTER")
        key = self._streams.key_of(first.register.token)
        listed = first.register.task_ids
        if len(listed) > MOST_LISTED or any(len(each) > MAX_ID_BYTES for each in listed):
            raise InvalidRequest("REGISTER lists too many tasks, or an id that is too long")
        return self._streams.open(key, frozenset(map(TaskId, listed)))

    async def _read(
        self, stream: Stream, requests: AsyncIterator[pb.ExecutorServiceConnectRequest]
    ) -> None:
        try:
            async for request in requests:
                match request.WhichOneof("request"):
                    case "update":
                        await self._streams.updated(stream, _update(stream, request.update))
                    case "message":
                        await self._streams.said(stream, request.message)
                    case kind:
                        raise ProtocolViolation(
                            f"a request that is unknown here: {kind or 'empty'}"
                        )
        finally:
            stream.close("")


def _update(stream: Stream, wire: pb.ExecutorUpdate) -> ExecutorUpdated:
    state = _STATES.get(wire.state)
    if state is None:
        names = ", ".join(state.name for state in TaskState if state in REPORTABLE)
        raise InvalidRequest(f"an executor reports {names}, not {wire.state}")
    if not wire.number or len(wire.task_id) > MAX_ID_BYTES:
        raise InvalidRequest("an update has a number from 1, and a task id")
    labels = labels_from_wire(wire.labels, "in an update")
    check_news(wire.data, labels)
    return ExecutorUpdated(
        stream.key,
        stream.number,
        TaskId(wire.task_id),
        state,
        wire.number.to_bytes(8, "big"),
        wire.message[:MAX_MESSAGE],
        wire.data,
        labels,
    )


def _response(message: Message) -> pb.ExecutorServiceConnectResponse:
    match message:
        case fx.Welcome(framework_id, agent_id, info):
            registered = pb.ExecutorRegistered(
                framework_id=framework_id, agent_id=agent_id, executor=task_to_wire(info)
            )
            return pb.ExecutorServiceConnectResponse(registered=registered)
        case fx.RunTask(info):
            return pb.ExecutorServiceConnectResponse(launch=task_to_wire(info))
        case fx.EndTask(task_id, grace_ms):
            policy = task_pb2.KillPolicy(grace_ms=grace_ms)
            kill = pb.ExecutorKill(task_id=task_id, kill_policy=policy)
            return pb.ExecutorServiceConnectResponse(kill=kill)
        case fx.UpdateDurable(_, update_id):
            number = int.from_bytes(update_id, "big")
            return pb.ExecutorServiceConnectResponse(acknowledged=number)
        case fx.Said(data):
            return pb.ExecutorServiceConnectResponse(message=data)
        case fx.ShutDown(grace_ms):
            policy = task_pb2.KillPolicy(grace_ms=grace_ms)
            return pb.ExecutorServiceConnectResponse(shutdown=policy)
        case _:
            assert_never(message)
