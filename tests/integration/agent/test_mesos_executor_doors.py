"""Hostile and broken executors at the API of Mesos that an agent serves."""

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
import pytest
from prometheus_client import CollectorRegistry

from croupier.agent.core import events as ev
from croupier.agent.mesos.executor_api import LIMITS, MOST_BODY, PATH, ExecutorApi
from croupier.model.agent_orders import LaunchTask
from croupier.model.executor import (
    ExecutorSpec,
)
from croupier.model.ids import DEFAULT_ROLE, TaskId
from croupier.model.task import TaskState
from croupier.net.address import Address
from croupier.process.clock import SystemClock
from croupier.process.http.late_server import LateHttpServer
from croupier.process.http.server import HttpServer
from tests.harness.agent_core import F, task
from tests.harness.eventually import eventually
from tests.harness.executor_doors import KEY, OTHER, Agent, serving
from tests.harness.recordio import Records

UUID = b64encode(b"u" * 16).decode()


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
