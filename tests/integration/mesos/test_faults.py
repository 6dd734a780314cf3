"""Clients of the gateway that break its rules, or do not read."""

from __future__ import annotations

import asyncio
import json
import socket

from croupier.master.app import MasterDaemon
from croupier.master.mesos.session import MesosSession
from croupier.master.sessions import SessionLimits
from croupier.mesos.fields import Json
from tests.fuzz.mesos_attack import MesosAttack
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT, RawAgent, running_master
from tests.harness.mesos import RawScheduler, gateway, scalar, task

MIB = 1024 * 1024


async def unread_subscription(master: MasterDaemon, framework_id: str) -> socket.socket:
    """Subscribe on a connection from which nothing more is read, and return it."""
    at = gateway(master)
    info = {"user": "x", "name": "deaf", "id": {"value": framework_id}, "failover_timeout": 60}
    call = {
        "type": "SUBSCRIBE",
        "framework_id": info["id"],
        "subscribe": {"framework_info": info},
    }
    body = json.dumps(call).encode()
    head = f"POST /api/v1/scheduler HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\n"
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((at.host, at.port))
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    assert b"200 OK" in await loop.sock_recv(connection, 64)
    return connection


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    limits = SessionLimits(outbox_bytes=MIB)
    async with (
        running_master(mesos_listen=ANY_PORT, limits=limits) as master,
        RawScheduler(gateway(master)) as scheduler,
    ):
        await scheduler.subscribe()
        (framework,) = master.driver.state.frameworks.values()
        connection = await unread_subscription(master, scheduler.framework_id)
        await scheduler.ended()
        await eventually(lambda: framework.session is not None)
        (session,) = master.leadership.term().sessions._sessions.values()
        assert isinstance(session, MesosSession)
        scheduler.stream_id = session.stream_id
        tasks = [{"task_id": {"value": f"t{number}"}} for number in range(5_000)]
        for _ in range(20):
            if framework.session is None:
                break
            await scheduler.call("RECONCILE", tasks=tasks)
        await eventually(lambda: framework.session is None)
        assert session.outbox.held_bytes < 2 * MIB
        connection.close()


async def test_calls_before_subscribed_are_refused(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    for framework_id in ("", "none"):
        scheduler.framework_id = framework_id
        assert (await scheduler.call("SUPPRESS"))[0] == 400
    assert not master.driver.state.frameworks


ODD_TASKS: list[Json] = [
    {"resources": [scalar("cpus", 0.0004)]},
    {"resources": [scalar("cpus", -1)]},
    {"resources": [scalar("cpus", 4e12)] * 200},
    {"resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 10**400}}]},
    {"resources": [{"name": "cpus", "type": "TEXT"}]},
    {"resources": [{"name": "cpus", "type": "SCALAR"}, scalar("mem", 32)]},
    {"resources": [scalar("cpus", float("nan")), scalar("mem", 32)]},
    {"agent_id": {"value": "another"}},
    {"agent_id": None},
    {"resources": [scalar("cpus", 1)] * 1_000},
    {"resources": [{"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 2}]}}]},
    {"resources": [{**scalar("disk", 1), "disk": {"persistence": {"id": "x"}}}]},
    {"resources": [{**scalar("cpus", 1), "revocable": {}}]},
    {"resources": []},
    {"task_id": {"value": "a/b"}},
    {"task_id": None},
    {"command": None},
    {"command": {"value": ""}},
    {"command": {"value": "true", "environment": {"variables": [{"name": "=", "value": "x"}]}}},
    {"kill_policy": {"grace_period": {"nanoseconds": -1}}},
    {"max_completion_time": {"nanoseconds": 2**70}},
    {"limits": {"disk": {"value": 1}}},
    {"limits": {"mem": {"value": 1}}},
    {"limits": {"mem": {"value": float("nan")}}},
    {"labels": {"labels": [{"key": "k", "value": "v"}] * 1_000}},
    {"container": {"type": "DOCKER", "docker": {"image": "x", "network": "BRIDGE"}}},
    {"container": {"type": "MESOS", "volumes": [{"container_path": "/x", "mode": "RW"}]}},
    {"executor": {"executor_id": {"value": "e"}}},
]


async def test_odd_tasks_are_refused_one_by_one(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await agent.register()
        await scheduler.subscribe()
        offer = await scheduler.offer()
        odd = [{**task(offer, f"odd-{n}"), **more} for n, more in enumerate(ODD_TASKS)]
        await scheduler.accept(offer, *odd, task(offer, "good"))
        assert (await agent.next("launch")).launch.task.task_id == "good"
        for each in odd:
            status = (await scheduler.next("UPDATE"))["update"]["status"]
            assert status["state"] == "TASK_ERROR", (each, status)
            assert status["message"]


async def test_no_call_makes_the_gateway_fail(master: MasterDaemon) -> None:
    async with RawAgent(master.address) as agent:
        await agent.register(cpus=64, isolation=["executors", "groups", "mesos-executors"])
        attack = MesosAttack(gateway(master), seed=1)
        for _ in range(5):
            await attack.next()
        assert attack.answers["202"]
    async with RawScheduler(gateway(master)) as scheduler:
        await scheduler.subscribe()
