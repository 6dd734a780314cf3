"""Hostile and broken executors at the unix socket of an agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from croupier.agent.executors.streams import MOST_UPDATES
from croupier.model.executor import (
    MAX_MESSAGE_DATA,
    MAX_UPDATE_DATA,
    SOCKET_VARIABLE,
    TOKEN_VARIABLE,
)
from croupier.model.ids import TaskId
from croupier.model.task import TaskState
from croupier.sdk.executor import Executor, LaunchedTask
from croupier.v1 import executor_pb2 as pb
from croupier.v1 import framework_pb2, task_pb2
from croupier.v1.executor_pb2_grpc import ExecutorServiceStub
from tests.harness.agent_core import F
from tests.harness.eventually import eventually
from tests.harness.executor_doors import KEY, Agent, serving

PROTOCOL = framework_pb2.ERROR_CODE_PROTOCOL
UNAUTHENTICATED = framework_pb2.ERROR_CODE_UNAUTHENTICATED
INVALID = framework_pb2.ERROR_CODE_INVALID


@asynccontextmanager
async def connected(agent: Agent, *requests: Any) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(f"unix:{agent.server.path}") as channel:
        call = ExecutorServiceStub(channel).Connect()
        for request in requests:
            await call.write(request)
        yield call
        call.cancel()


def request(**fields: Any) -> pb.ExecutorServiceConnectRequest:
    return pb.ExecutorServiceConnectRequest(**fields)


def update(**fields: Any) -> pb.ExecutorServiceConnectRequest:
    told = {"task_id": "t1", "state": task_pb2.TASK_RUNNING, "number": 1, **fields}
    return request(update=pb.ExecutorUpdate(**told))


async def last_error(call: Any) -> framework_pb2.Error:
    async with asyncio.timeout(30):
        responses = [each async for each in call]
    assert responses[-1].HasField("error"), responses
    error: framework_pb2.Error = responses[-1].error
    return error


class Eager(Executor):
    """Reports that each task runs, and then raises `error`."""

    error: BaseException | None = None

    async def on_launch(self, task: LaunchedTask) -> None:
        await self.update(task.task_id, TaskState.RUNNING)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    "name", ["50%41 #1? yes", "\u0436" * 15, "d" * 180], ids=["reserved", "not ascii", "long"]
)
async def test_the_work_dir_may_have_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    work_dir = tmp_path / name
    work_dir.mkdir()
    async with serving(work_dir) as agent:
        monkeypatch.setenv(SOCKET_VARIABLE, str(agent.server.path))
        monkeypatch.setenv(TOKEN_VARIABLE, agent.token())
        executor = Eager()
        running = asyncio.create_task(executor.run())
        await eventually(lambda: agent.states("t1")[-1:] == [TaskState.RUNNING])
        await executor.stop()
        await running


@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError()], ids=repr)
async def test_an_exception_in_the_launch_fails_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    async with serving(tmp_path) as agent:
        monkeypatch.setenv(SOCKET_VARIABLE, str(agent.server.path))
        monkeypatch.setenv(TOKEN_VARIABLE, agent.token())
        executor = Eager()
        executor.error = error
        running = asyncio.create_task(executor.run())
        await eventually(lambda: agent.states("t1")[-1:] == [TaskState.FAILED])
        await executor.stop()
        await running


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (request(), PROTOCOL),
        (update(), PROTOCOL),
        (request(message=b"x"), PROTOCOL),
        (request(register=pb.RegisterExecutor()), UNAUTHENTICATED),
        (request(register=pb.RegisterExecutor(token="a" * 64)), UNAUTHENTICATED),
        (request(register=pb.RegisterExecutor(token="\u00e9")), UNAUTHENTICATED),
    ],
)
async def test_a_stream_begins_with_the_token_of_an_executor(
    tmp_path: Path, first: pb.ExecutorServiceConnectRequest, code: int
) -> None:
    async with serving(tmp_path) as agent, connected(agent, first) as call:
        assert (await last_error(call)).code == code
        assert agent.world.state.executors[KEY].connection is None


@pytest.mark.parametrize(
    "bad",
    [
        update(state=task_pb2.TASK_STAGING),
        update(state=99),
        update(number=0),
        update(task_id="x" * 300),
        update(data=b"x" * (MAX_UPDATE_DATA + 1)),
        update(labels=[task_pb2.Label(key="k")] * 100),
        request(message=b"x" * (MAX_MESSAGE_DATA + 1)),
    ],
)
async def test_a_bad_request_ends_the_stream_and_changes_nothing(
    tmp_path: Path, bad: pb.ExecutorServiceConnectRequest
) -> None:
    async with serving(tmp_path) as agent:
        register = request(register=pb.RegisterExecutor(token=agent.token()))
        async with connected(agent, register, bad) as call:
            assert (await last_error(call)).code == INVALID
        assert agent.states("t1") == [TaskState.STARTING]
        # The executor may come back.
        async with connected(agent, register, update()) as call:
            await eventually(lambda: TaskState.RUNNING in agent.states("t1"))


async def test_updates_wait_while_the_agent_does_not_record_them(tmp_path: Path) -> None:
    async with serving(tmp_path) as agent:
        register = request(register=pb.RegisterExecutor(token=agent.token()))
        async with connected(agent, register) as call:
            await eventually(lambda: agent.world.state.executors[KEY].connection)
            agent.is_stalled = True
            writing = asyncio.create_task(_flood(call))
            await eventually(lambda: len(agent.inbox) >= MOST_UPDATES)
            await asyncio.sleep(0.2)
            assert len(agent.inbox) == MOST_UPDATES
            agent.is_stalled = False
            await writing
            await eventually(lambda: TaskState.FINISHED in agent.states("t1"))
        # No more wait for the framework than a master takes.
        assert len(agent.world.state.tasks[F, TaskId("t1")].updates.waiting) <= 51


async def _flood(call: Any) -> None:
    for number in range(1, 2_000):
        await call.write(update(number=number, message=str(number)))
    await call.write(update(number=2_000, state=task_pb2.TASK_FINISHED))


async def test_a_flood_of_messages_is_dropped_and_counted(tmp_path: Path) -> None:
    async with serving(tmp_path) as agent:
        register = request(register=pb.RegisterExecutor(token=agent.token()))
        async with connected(agent, register) as call:
            for _ in range(100):
                await call.write(request(message=b"x" * MAX_MESSAGE_DATA))
            await eventually(lambda: agent.dropped.count("to_framework") > 50)


async def test_any_user_may_connect_so_connections_and_their_calls_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croupier.agent.executors.service.MOST_CONNECTIONS", 2)
    async with serving(tmp_path) as agent:
        register = request(register=pb.RegisterExecutor(token=agent.token()))
        path = str(agent.server.path)
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            idle = ExecutorServiceStub(channel).Connect()
            await idle.wait_for_connection()
            following = ExecutorServiceStub(channel).Connect()
            writing = asyncio.create_task(following.write(register))
            _, held = await asyncio.open_unix_connection(path)
            refused, unused = await asyncio.open_unix_connection(path)
            async with asyncio.timeout(30):
                assert await refused.read() == b""
            # One that waits for its REGISTER keeps its connection busy.
            assert agent.world.state.executors[KEY].connection is None
            idle.cancel()
            await writing
            await eventually(lambda: agent.world.state.executors[KEY].connection)
            for each in (held, unused):
                each.close()
