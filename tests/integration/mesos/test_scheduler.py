"""Frameworks of Mesos run tasks through the gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from croupier.master.app import MasterDaemon
from croupier.model.ids import FrameworkId
from tests.harness.agents import running_agent
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT, RawAgent, running_master
from tests.harness.mesos import RawScheduler, gateway, scalar, task


async def test_a_task_runs_and_its_updates_are_acknowledged(
    master: MasterDaemon, scheduler: RawScheduler, tmp_path: Path
) -> None:
    async with running_agent(tmp_path, master.address):
        subscribed = await scheduler.subscribe()
        assert subscribed["heartbeat_interval_seconds"] == 15
        offer = await scheduler.offer()
        assert offer["hostname"] == "host-1"
        assert offer["url"]["path"] == "/slave(1)"
        named = {each["name"]: each for each in offer["resources"]}
        assert named["cpus"] == {**scalar("cpus", 4.0), "role": "*"}
        assert named["ports"]["ranges"] == {"range": [{"begin": 31000, "end": 31099}]}
        await scheduler.accept(offer, task(offer, "a", "echo out; exit 3"))
        failed = await scheduler.update("TASK_FAILED")
        assert (failed["source"], failed["agent_id"]) == ("SOURCE_EXECUTOR", offer["agent_id"])
        assert isinstance(failed["timestamp"], float)
        await scheduler.accept(await scheduler.offer(), task(offer, "b"))
        assert (await scheduler.update("TASK_FINISHED"))["task_id"] == {"value": "b"}
        (framework,) = master.driver.state.frameworks.values()
        await eventually(lambda: not framework.tasks)


async def test_each_record_is_one_chunk_and_a_heartbeat_follows_each_burst(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe()
        await agent.register()
        await scheduler.offer()
        while scheduler.heard[-1]["type"] != "HEARTBEAT":
            await scheduler.next("HEARTBEAT")
    for chunk in scheduler.chunks:
        size, _, record = chunk.partition(b"\n")
        assert int(size) == len(record)
        assert b"\n" not in record
    assert scheduler.heard[-1] == {"type": "HEARTBEAT"}


async def test_a_task_is_killed_and_an_unknown_one_is_answered_like_reconcile(
    master: MasterDaemon, scheduler: RawScheduler, tmp_path: Path
) -> None:
    async with running_agent(tmp_path, master.address):
        await scheduler.subscribe()
        offer = await scheduler.offer()
        await scheduler.accept(offer, task(offer, "a", "sleep 100"))
        (network,) = (await scheduler.update("TASK_RUNNING"))["container_status"]["network_infos"]
        assert network["ip_addresses"] == [{"ip_address": offer["url"]["address"]["ip"]}]
        assert await scheduler.call("KILL", task_id={"value": "none"}) == (202, "")
        lost = await scheduler.update("TASK_LOST")
        assert lost["reason"] == "REASON_RECONCILIATION"
        assert "uuid" not in lost
        named = [{"task_id": {"value": each}} for each in ("x" * 300, "none")]
        await scheduler.call("RECONCILE", tasks=named)
        assert (await scheduler.update("TASK_LOST"))["task_id"] == {"value": "none"}
        await scheduler.call("RECONCILE", tasks=named[:1])
        await scheduler.call("RECONCILE", tasks=[])
        running = await scheduler.update("TASK_RUNNING")
        assert running["reason"] == "REASON_RECONCILIATION"
        await scheduler.call("KILL", task_id={"value": "a"}, agent_id=offer["agent_id"])
        assert "reason" not in await scheduler.update("TASK_KILLED")


async def test_new_states_are_named_for_a_partition_aware_framework(
    scheduler: RawScheduler,
) -> None:
    await scheduler.subscribe(capabilities=[{"type": "PARTITION_AWARE"}])
    await scheduler.call("RECONCILE", tasks=[{"task_id": {"value": "x"}}])
    assert (await scheduler.update("TASK_UNKNOWN"))["task_id"] == {"value": "x"}


async def test_offers_are_declined_suppressed_and_revived(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe(roles="dev", capabilities=[{"type": "MULTI_ROLE"}])
        await agent.register()
        offer = await scheduler.offer()
        assert offer["allocation_info"] == {"role": "dev"}
        assert offer["resources"][0]["allocation_info"] == {"role": "dev"}
        forever = {"refuse_seconds": 0xFFFFFFFF}
        await scheduler.call("DECLINE", offer_ids=[offer["id"]], filters=forever)
        await scheduler.call("SUPPRESS")
        await scheduler.call("REVIVE")
        assert (await scheduler.offer())["id"] != offer["id"]


async def test_a_decline_may_name_more_offers_than_a_call_of_the_core(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe()
        await agent.register()
        offer = await scheduler.offer()
        ended = [{"value": f"{offer['id']['value']}{number}"} for number in range(1_000)]
        await scheduler.call("DECLINE", offer_ids=[*ended, offer["id"]])
        await eventually(lambda: not master.driver.state.offers)


async def test_a_reconcile_may_name_more_tasks_than_a_call_of_the_core(
    scheduler: RawScheduler,
) -> None:
    await scheduler.subscribe()
    tasks = [{"task_id": {"value": f"t{number}"}} for number in range(10_001)]
    await scheduler.call("RECONCILE", tasks=tasks)
    while (await scheduler.next("UPDATE"))["update"]["status"]["task_id"] != {"value": "t10000"}:
        pass


async def test_what_has_no_form_in_croupier_is_refused_with_a_reason(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe()
        await agent.register()
        offer = await scheduler.offer()
        await scheduler.accept(
            offer,
            task(offer, "probed", health_check={"type": "HTTP"}),
            task(offer, "fetched", command={"value": "true", "uris": [{"value": "http://x/y"}]}),
            task(offer, "large", resources=[scalar("cpus", 1000)]),
            task(offer, "good"),
        )
        found = {}
        for _ in range(3):
            status = (await scheduler.next("UPDATE"))["update"]["status"]
            assert (status["state"], status["reason"]) == ("TASK_ERROR", "REASON_TASK_INVALID")
            assert status["agent_id"] == offer["agent_id"]
            assert "uuid" not in status
            found[status["task_id"]["value"]] = status["message"]
        assert found["probed"] == "health checks are not supported"
        assert found["fetched"].startswith("URIs are not supported")
        assert "does not fit" in found["large"]
        launch = await agent.next("launch")
        assert launch.launch.task.task_id == "good"


async def test_tasks_on_offers_that_have_ended_are_lost(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe()
        await agent.register()
        offer = await scheduler.offer()
        await scheduler.call("DECLINE", offer_ids=[offer["id"]])
        await scheduler.accept(offer, task(offer, "late"))
        lost = await scheduler.update("TASK_LOST")
        assert lost["reason"] == "REASON_INVALID_OFFERS"
        assert "uuid" not in lost


async def test_a_lost_agent_is_a_failure_and_its_offer_is_rescinded(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe()
        await agent.register()
        offer = await scheduler.offer()
    assert (await scheduler.next("RESCIND"))["rescind"]["offer_id"] == offer["id"]


async def test_teardown_ends_the_stream(master: MasterDaemon, scheduler: RawScheduler) -> None:
    await scheduler.subscribe()
    assert await scheduler.call("TEARDOWN") == (202, "")
    await scheduler.ended()
    framework_id = scheduler.framework_id
    await eventually(lambda: not any(master.driver.state.peers.values()))
    async with RawScheduler(gateway(master)) as again:
        assert await again.open(framework_id) == 200
        assert "was removed" in (await again.next("ERROR"))["error"]["message"]
        await again.ended()


async def test_a_second_subscribe_takes_over(master: MasterDaemon, scheduler: RawScheduler) -> None:
    await scheduler.subscribe()
    async with RawScheduler(gateway(master)) as second:
        await second.subscribe(scheduler.framework_id)
        assert second.framework_id == scheduler.framework_id
        assert "taken over" in (await scheduler.next("ERROR"))["error"]["message"]
        await scheduler.ended()
        status, text = await scheduler.call("SUPPRESS")
        assert (status, "didn't match" in text) == (400, True)
        assert (await second.call("SUPPRESS"))[0] == 202


async def test_a_closed_stream_disconnects_the_framework(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    await scheduler.subscribe()
    peers = master.driver.state.peers
    assert peers
    scheduler.close()
    await eventually(lambda: not peers)
    status, text = await scheduler.call("SUPPRESS")
    assert (status, text) == (403, "Framework is not subscribed")


async def test_a_framework_with_no_failover_timeout_is_removed_with_its_stream(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    await scheduler.subscribe(failover_timeout=None)
    scheduler.close()
    state, framework_id = master.driver.state, FrameworkId(scheduler.framework_id)
    await eventually(lambda: framework_id not in state.frameworks)


async def test_refused_frameworks_get_an_error_on_their_stream(scheduler: RawScheduler) -> None:
    assert await scheduler.open(roles=["a//b"]) == 200
    assert "illegal component" in (await scheduler.next("ERROR"))["error"]["message"]
    await scheduler.ended()


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ([], 400, "an object is expected"),
        ({}, 400, "unknown type"),
        ({"type": "SLEEP"}, 400, "unknown type 'SLEEP'"),
        ({"type": "ACCEPT"}, 400, "Expecting 'accept' to be present"),
        ({"type": "SUBSCRIBE"}, 400, "Expecting 'subscribe' to be present"),
        (
            {
                "type": "SUBSCRIBE",
                "framework_id": {"value": "F1"},
                "subscribe": {"framework_info": {"id": {"value": "F2"}}},
            },
            400,
            "'framework_id' differs from 'subscribe.framework_info.id'",
        ),
        (
            {"type": "SUBSCRIBE", "subscribe": {"framework_info": {"id": {"value": "F2"}}}},
            400,
            "'framework_id' differs from 'subscribe.framework_info.id'",
        ),
        ({"type": "SUPPRESS"}, 400, "Expecting 'framework_id' to be present"),
        ({"type": "SUPPRESS", "framework_id": {"value": "F"}}, 400, "Framework cannot be found"),
    ],
)
async def test_calls_that_fit_no_stream_are_refused(
    scheduler: RawScheduler, body: object, status: int, words: str
) -> None:
    found, text = await scheduler.post(body)
    assert (found, words in text) == (status, True), text


async def test_other_requests_are_refused(scheduler: RawScheduler) -> None:
    await scheduler.subscribe()
    base = scheduler.url
    async with scheduler.http.get(base) as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    async with scheduler.http.post(base, data=b"x") as answer:
        assert answer.status == 415
    refused = {"type": "SUBSCRIBE", "subscribe": {}}
    assert (await scheduler.post(refused, {"Accept": "text/html"}))[0] == 406
    assert (await scheduler.post(refused, {"Mesos-Stream-Id": "x"}))[0] == 400
    uuid = {"agent_id": {"value": "a"}, "task_id": {"value": "t"}, "uuid": "AAAA"}
    assert await scheduler.call("ACKNOWLEDGE", **uuid) == (400, "uuid does not have 16 bytes")
    scheduler.stream_id = ""
    assert (await scheduler.call("SUPPRESS"))[0] == 400
    assert (await scheduler.call("REQUEST", requests=[]))[0] == 400


async def test_ignored_calls_are_accepted(scheduler: RawScheduler) -> None:
    await scheduler.subscribe()
    for kind in ("REQUEST", "ACCEPT_INVERSE_OFFERS", "RECONCILE_OPERATIONS"):
        assert await scheduler.call(kind, tasks=[]) == (202, "")


async def test_a_call_may_fill_a_message_and_no_more(scheduler: RawScheduler) -> None:
    await scheduler.subscribe()
    assert (await scheduler.call("REQUEST", requests=["x" * 1_000_000]))[0] == 202
    assert (await scheduler.call("REQUEST", requests=["x" * 1_048_600]))[0] == 400
    assert (await scheduler.call("REQUEST", requests=["x" * 2_000_000]))[0] == 413


async def test_a_master_says_that_it_is_one(scheduler: RawScheduler) -> None:
    root = scheduler.url.removesuffix("/api/v1/scheduler")
    for path in ("/version", "/master/version"):
        async with scheduler.http.get(root + path) as answer:
            assert (await answer.json()) == {"version": "1.11.0"}
    async with scheduler.http.get(f"{root}/health") as answer:
        assert answer.status == 200
    async with scheduler.http.get(f"{root}/redirect", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (307, root.removeprefix("http:"))


async def test_an_idle_framework_stays_connected_as_long_as_it_reads() -> None:
    async with (
        running_master(mesos_listen=ANY_PORT, heartbeat=0.1, agent_timeout=2.0) as master,
        RawScheduler(gateway(master)) as scheduler,
    ):
        subscribed = await scheduler.subscribe()
        assert subscribed["heartbeat_interval_seconds"] == 0.1
        for _ in range(25):
            await scheduler.next("HEARTBEAT")
        assert master.driver.state.peers


async def test_subscribe_needs_http_1_1(master: MasterDaemon) -> None:
    at = gateway(master)
    body = b'{"type":"SUBSCRIBE","subscribe":{"framework_info":{"user":"x","name":"old"}}}'
    head = f"POST /api/v1/scheduler HTTP/1.0\r\nHost: {at}\r\nContent-Type: application/json\r\n"
    reader, writer = await asyncio.open_connection(at.host, at.port)
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    assert b" 400 " in await reader.readline()
    writer.close()
