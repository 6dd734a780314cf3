"""Hostile and broken executors at the doors of an agent: its unix socket, and the API of Mesos."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

from croupier.agent.core import effects as fx
from croupier.agent.core import events as ev
from croupier.agent.core.events import Event
from croupier.agent.executors.service import ExecutorServer
from croupier.agent.executors.streams import MOST_UPDATES, Streams
from croupier.agent.mesos.executor_api import LIMITS, MOST_BODY, PATH, ExecutorApi
from croupier.model.agent_orders import LaunchTask
from croupier.model.executor import (
    MAX_MESSAGE_DATA,
    MAX_UPDATE_DATA,
    SOCKET_VARIABLE,
    TOKEN_VARIABLE,
    ExecutorSpec,
)
from croupier.model.ids import DEFAULT_ROLE, TaskId
from croupier.model.isolation import Feature
from croupier.model.task import Command, TaskState
from croupier.net.address import Address
from croupier.process.clock import SystemClock
from croupier.process.http.late_server import LateHttpServer
from croupier.process.http.server import HttpServer
from croupier.process.inbox import Inbox
from croupier.sdk.executor import Executor, LaunchedTask
from croupier.v1 import executor_pb2 as pb
from croupier.v1 import framework_pb2, task_pb2
from croupier.v1.executor_pb2_grpc import ExecutorServiceStub
from tests.harness.agent_core import F, World, task
from tests.harness.eventually import eventually
from tests.harness.recordio import Records

KEY = (F, TaskId("e1"))
OTHER = (F, TaskId("e2"))
UUID = b64encode(b"u" * 16).decode()
PROTOCOL = framework_pb2.ERROR_CODE_PROTOCOL
UNAUTHENTICATED = framework_pb2.ERROR_CODE_UNAUTHENTICATED
INVALID = framework_pb2.ERROR_CODE_INVALID


class Agent:
    """The core of an agent with two executors, behind both doors."""

    def __init__(self, work_dir: Path) -> None:
        self.world = World()
        self.world.state.features = frozenset({Feature.EXECUTORS, Feature.MESOS_EXECUTORS})
        for key, api in ((KEY, ""), (OTHER, "mesos")):
            info = replace(task(key[1]), executor=ExecutorSpec(api=api))
            self.world.do(LaunchTask(F, info, DEFAULT_ROLE), ev.Started(key, 7))
        self.task("t1", KEY[1])
        self.task("t2", OTHER[1])
        self.inbox: Inbox[Event] = Inbox()
        self.dropped: list[str] = []
        self.streams = Streams(
            self.world.state, self.inbox, work_dir, SystemClock(), self.dropped.append
        )
        self.server = ExecutorServer(self.streams)
        self.uid = 0
        self.is_stalled = False

    def task(self, task_id: str, executor_id: str) -> None:
        info = replace(task(task_id), command=Command(), executor_id=TaskId(executor_id))
        self.world.do(LaunchTask(F, info, DEFAULT_ROLE))

    def token(self, key: tuple[Any, Any] = KEY) -> str:
        return self.streams.token_of(self.world.state.tasks[key].run)

    async def drive(self) -> None:
        while True:
            await self.inbox.wait(None)
            if self.is_stalled:
                await asyncio.sleep(0.01)
                continue
            before = len(self.world.effects)
            for event in self.inbox.take(1000):
                self.world.do(event)
            for effect in self.world.effects[before:]:
                if isinstance(effect, fx.ToExecutor | fx.CloseExecutor):
                    self.streams.perform(effect)

    def states(self, task_id: str) -> list[TaskState]:
        moved = [each.status for each in self.world.effects if isinstance(each, fx.Moved)]
        return [status.state for status in moved if status.task_id == task_id]


@asynccontextmanager
async def serving(work_dir: Path) -> AsyncIterator[Agent]:
    agent = Agent(work_dir)
    agent.server.start()
    driving = asyncio.create_task(agent.drive())
    try:
        yield agent
    finally:
        driving.cancel()
        await agent.server.close()


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


# The API of Mesos.


@asynccontextmanager
async def at_mesos(agent: Agent) -> AsyncIterator[str]:
    def make() -> HttpServer:
        api = ExecutorApi(agent.world.state, agent.streams, "host", lambda _: agent.uid)
        routes, clock = api.routes(), SystemClock()
        return HttpServer(
            CollectorRegistry(), clock, lambda: None, routes, names=(), limits=LIMITS, guards={}
        )

    server = LateHttpServer(make)
    port = await server.start(Address("127.0.0.1", 0))
    try:
        yield f"http://127.0.0.1:{port}{PATH}"
    finally:
        await server.stop()


def mesos(kind: str, executor_id: str = "e2", **more: Any) -> dict[str, Any]:
    ids = {"framework_id": {"value": F}, "executor_id": {"value": executor_id}}
    return {"type": kind, **ids, **more}


def mesos_update(**fields: Any) -> dict[str, Any]:
    status = {"task_id": {"value": "t2"}, "state": "TASK_RUNNING", "uuid": UUID, **fields}
    return mesos("UPDATE", update={"status": status})


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"[" * 100_000, 400),
        (b"x" * (MOST_BODY + 1), 400),
        (mesos("SUBSCRIBE", "e1"), 403),
        (mesos("SUBSCRIBE", "e9"), 403),
        (mesos("UPDATE"), 403),
        ({"type": "SUBSCRIBE"}, 403),
    ],
)
async def test_a_call_of_no_executor_of_mesos_is_refused(
    tmp_path: Path, body: Any, status: int
) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with (
        serving(tmp_path) as agent,
        at_mesos(agent) as url,
        aiohttp.ClientSession() as client,
        client.post(url, data=data) as answer,
    ):
        assert answer.status == status


async def test_the_agent_is_described(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as agent,
        at_mesos(agent) as url,
        aiohttp.ClientSession() as client,
        client.get(url.replace(PATH, "/state")) as answer,
    ):
        assert (await answer.json())["id"] == agent.world.state.agent_id


async def test_only_the_user_of_an_executor_or_its_token_speaks_for_it(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as agent,
        at_mesos(agent) as url,
        aiohttp.ClientSession() as client,
    ):
        agent.uid = 12345
        wrong = {"Authorization": f"Bearer {agent.token(KEY)}"}
        async with client.post(url, json=mesos("SUBSCRIBE"), headers=wrong) as answer:
            assert answer.status == 403
        bad = {"Authorization": "Bearer none"}
        async with client.post(url, json=mesos("SUBSCRIBE"), headers=bad) as answer:
            assert answer.status == 401
        right = {"Authorization": f"Bearer {agent.token(OTHER)}"}
        async with client.post(url, json=mesos("SUBSCRIBE"), headers=right) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("has_token", [False, True])
async def test_an_executor_is_started_anew_before_the_one_of_its_id_has_ended(
    tmp_path: Path, has_token: bool
) -> None:
    data = json.dumps({"executor_info": {"executor_id": {"value": "e2"}}}).encode()
    info = replace(task("e3", "mem:1MB"), executor=ExecutorSpec(api="mesos"), data=data)
    newer = (F, TaskId("e3"))
    async with (
        serving(tmp_path) as agent,
        at_mesos(agent) as url,
        aiohttp.ClientSession() as client,
        client.post(url, json=mesos("SUBSCRIBE")),
    ):
        await eventually(lambda: agent.world.state.executors[OTHER].connection)
        agent.world.do(LaunchTask(F, info, DEFAULT_ROLE), ev.Started(newer, 8))
        headers = {"Authorization": f"Bearer {agent.token(newer)}"} if has_token else {}
        async with client.post(url, json=mesos("SUBSCRIBE"), headers=headers) as answer:
            assert answer.status == 200
            await eventually(lambda: agent.world.state.executors[newer].connection)
            # The older one reports on its task.
            async with client.post(url, json=mesos_update()) as answer:
                assert answer.status == 202
            await eventually(lambda: TaskState.RUNNING in agent.states("t2"))
        assert agent.world.state.executors[OTHER].connection


async def test_an_executor_of_mesos_gets_its_tasks_and_reports(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as agent,
        at_mesos(agent) as url,
        aiohttp.ClientSession() as client,
        client.post(url, json=mesos("SUBSCRIBE")) as stream,
    ):
        records = Records(1 << 20)
        events: list[dict[str, Any]] = []

        async def has(kind: str) -> dict[str, Any]:
            async with asyncio.timeout(30):
                while not any(each["type"] == kind for each in events):
                    data = await stream.content.readany()
                    events.extend(json.loads(each) for each in records.read(data))
            return next(each for each in events if each["type"] == kind)

        assert (await has("LAUNCH"))["launch"]["task"]["task_id"] == {"value": "t2"}
        for bad in ({"state": "TASK_STAGING"}, {"uuid": ""}, {"uuid": "?"}, {"data": "?"}):
            async with client.post(url, json=mesos_update(**bad)) as answer:
                assert answer.status == 400
        async with client.post(url, json=mesos_update()) as answer:
            assert (answer.status, answer.headers["Content-Length"]) == (202, "0")
        acknowledged = (await has("ACKNOWLEDGED"))["acknowledged"]
        assert acknowledged == {"task_id": {"value": "t2"}, "uuid": UUID}
        assert agent.states("t2") == [TaskState.STARTING, TaskState.RUNNING]


async def test_random_calls_of_mesos_never_break_the_agent(tmp_path: Path) -> None:
    random = Random(7)
    values: tuple[Any, ...] = (
        None,
        7,
        -1,
        1e308,
        "x",
        "",
        [],
        [{}],
        {},
        {"value": 7},
        {"value": None},
        UUID,
        True,
    )

    def spoiled(of: Any) -> Any:
        if isinstance(of, dict):
            found = {key: spoiled(each) for key, each in of.items() if random.random() > 0.1}
            if random.random() < 0.2:
                found[random.choice(("type", "update", "status", "labels"))] = random.choice(values)
            return found
        return random.choice(values) if random.random() < 0.1 else of

    message = mesos("MESSAGE", message={"data": UUID})
    labels = {"labels": [{"key": "k", "value": "v"}]}
    calls = [mesos_update(labels=labels, message="m", data=UUID), message, mesos("HEARTBEAT")]
    async with (
        serving(tmp_path) as agent,
        at_mesos(agent) as url,
        aiohttp.ClientSession() as client,
        client.post(url, json=mesos("SUBSCRIBE")),
    ):
        await eventually(lambda: agent.world.state.executors[OTHER].connection)
        for _ in range(300):
            body = spoiled(random.choice(calls))
            if isinstance(body, dict) and body.get("type") == "SUBSCRIBE":
                continue
            async with client.post(url, json=body) as answer:
                assert answer.status in (202, 400, 403)
        async with client.post(url, json=mesos_update(state="TASK_FINISHED")) as answer:
            assert answer.status == 202
        agent.world.state.check()
