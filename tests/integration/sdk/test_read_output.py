"""A framework reads the output of its tasks through the master."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from croupier.net.address import Address
from croupier.net.transport import bind, make_server
from croupier.sdk import Framework, InvalidRequest, NotFound, Unavailable
from croupier.v1 import framework_pb2, operator_pb2, operator_pb2_grpc
from croupier.v1 import framework_pb2_grpc as rpc


class Service(rpc.FrameworkServiceServicer):
    """Accepts each framework as `f1`."""

    async def Connect(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802
        subscribed = framework_pb2.Subscribed(framework_id="f1", heartbeat_ms=1000)
        event = framework_pb2.Event(subscribed=subscribed)
        await context.write(framework_pb2.FrameworkServiceConnectResponse(events=[event]))
        async for _ in request_iterator:
            pass


class Operator(operator_pb2_grpc.OperatorServiceServicer):
    """Answers reads, after as many failures as `failing` says."""

    def __init__(self) -> None:
        self.asked: list[operator_pb2.ReadTaskFileRequest] = []
        self.failing = 0

    async def ReadTaskFile(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        self.asked.append(request)
        if self.failing:
            self.failing -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the agent is away")
        if request.task_id == "gone":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no task 'gone'")
        for part in (b"", b"loss=", b"0.25\n"):
            yield operator_pb2.ReadTaskFileResponse(data=part)


@asynccontextmanager
async def scene() -> AsyncIterator[tuple[Framework, Operator]]:
    server, operator = make_server(), Operator()
    rpc.add_FrameworkServiceServicer_to_server(Service(), server)
    operator_pb2_grpc.add_OperatorServiceServicer_to_server(operator, server)
    address = Address("127.0.0.1", bind(server, Address("127.0.0.1", 0)))
    await server.start()
    framework = Framework(master=str(address))
    running = asyncio.create_task(framework.run())
    try:
        async with asyncio.timeout(20):
            yield framework, operator
        await framework.stop()
        await running
    finally:
        await server.stop(None)


async def test_output_is_read_whole_or_by_its_last_lines() -> None:
    async with scene() as (framework, operator):
        assert await framework.read_output("t1") == b"loss=0.25\n"
        assert await framework.read_output("t1", stderr=True, tail=5) == b"loss=0.25\n"
    first, second = operator.asked
    assert (first.framework_id, first.task_id, first.path) == ("f1", "t1", "stdout")
    assert first.tail_bytes == 16 * 2**20
    assert (second.path, second.tail_lines, second.tail_bytes) == ("stderr", 5, 0)


async def test_an_agent_that_is_away_is_asked_again_and_a_refusal_is_final() -> None:
    async with scene() as (framework, operator):
        operator.failing = 2
        assert await framework.read_output("t1") == b"loss=0.25\n"
        assert len(operator.asked) == 3
        with pytest.raises(NotFound, match="no task 'gone'"):
            await framework.read_output("gone")
        with pytest.raises(InvalidRequest, match="at least 1"):
            await framework.read_output("t1", tail=0)
        with pytest.raises(InvalidRequest):
            await framework.read_output("a/b")
        await framework.stop()
        with pytest.raises(Unavailable, match="has stopped"):
            await framework.read_output("t1")
