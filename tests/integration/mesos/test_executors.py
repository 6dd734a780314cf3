"""Executors and groups of frameworks of Mesos are tasks of Croupier."""

from __future__ import annotations

import base64
import json
from typing import Any

from croupier.master.app import MasterDaemon
from croupier.master.mesos.executors import Executors
from croupier.master.mesos.tasks import executor_id_in, executor_task_id
from croupier.mesos.fields import Json
from croupier.model.ids import TaskId
from croupier.v1 import agent_pb2, task_pb2
from croupier.v1.task_pb2 import TaskInfo
from tests.harness.masters import RawAgent
from tests.harness.mesos import RawScheduler, gateway, scalar, task

FEATURES = ["executors", "groups", "mesos-executors"]


def in_executor(offer: Json, task_id: str, executor_id: str = "e", **more: Any) -> Json:
    """Return a task in an executor."""
    executor = {
        "executor_id": {"value": executor_id},
        "framework_id": {"value": "any"},
        "command": {"value": "serve", "environment": {"variables": [{"name": "A", "value": "b"}]}},
        **more,
    }
    found = task(offer, task_id, executor=executor, data="AAEC", unknown={"kept": [1]})
    del found["command"]
    return found


async def launched(agent: RawAgent) -> TaskInfo:
    """Return the next task that an agent is ordered to launch."""
    return (await agent.next("launch")).launch.task


async def report(agent: RawAgent, framework_id: str, task_id: str, **status: Any) -> None:
    """Report a status of a task."""
    fields = {"source": task_pb2.SOURCE_EXECUTOR, **status}
    made = task_pb2.TaskStatus(
        framework_id=framework_id, task_id=task_id, agent_id=agent.agent_id, **fields
    )
    updates = agent_pb2.StatusUpdates(statuses=[made])
    await agent.send(agent_pb2.Report(updates=updates))


async def test_an_executor_is_started_once_by_its_first_task(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe(checkpoint=True)
        await agent.register(isolation=FEATURES)
        offer = await scheduler.offer()
        one, two = in_executor(offer, "one"), in_executor(offer, "two")
        await scheduler.accept(offer, one, two)
        executor, first, second = [await launched(agent) for _ in range(3)]
        assert executor.executor.api == "mesos"
        assert executor.command.shell == "serve"
        assert executor_id_in(executor.task_id, agent.agent_id) == "e"
        data = json.loads(executor.data)
        assert data["executor_info"] == one["executor"]
        assert data["framework_info"]["id"] == {"value": scheduler.framework_id}
        assert data["framework_info"]["checkpoint"] is True
        assert first.executor_id == second.executor_id == executor.task_id
        assert json.loads(first.data) == one
        assert json.loads(second.data) == two
        # One that names no resources takes a thousandth of a CPU from its first task.
        milli = [each.resources.cpus_milli for each in (executor, first, second)]
        assert milli == [1, 499, 500]

        offer = await scheduler.offer()
        await scheduler.accept(offer, in_executor(offer, "three"))
        assert (await launched(agent)).executor_id == executor.task_id


async def test_updates_and_messages_of_an_executor_arrive(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe()
        await agent.register(isolation=FEATURES)
        offer = await scheduler.offer()
        shutdown = {"nanoseconds": 2 * 10**9}
        resources = [scalar("cpus", 0.1), scalar("mem", 32)]
        await scheduler.accept(
            offer,
            in_executor(offer, "t", resources=resources, shutdown_grace_period=shutdown),
        )
        executor, child = await launched(agent), await launched(agent)
        assert executor.resources.cpus_milli == 100
        assert executor.executor.shutdown_grace_ms == 2000
        framework_id = scheduler.framework_id
        await report(agent, framework_id, executor.task_id, state=task_pb2.TASK_RUNNING, sequence=1)
        # The gateway acknowledges the updates of executors themselves.
        assert (await agent.next("acknowledge")).acknowledge.task_id == executor.task_id
        # Mesos has no update for a task that waits for its executor.
        await report(
            agent, framework_id, child.task_id, state=task_pb2.TASK_STARTING, sequence=1,
            source=task_pb2.SOURCE_AGENT,
        )  # fmt: skip
        assert (await agent.next("acknowledge")).acknowledge.task_id == child.task_id
        await scheduler.call("RECONCILE", tasks=[{"task_id": {"value": "t"}}])
        staging = (await scheduler.next("UPDATE"))["update"]["status"]
        assert (staging["state"], staging["reason"]) == ("TASK_STAGING", "REASON_RECONCILIATION")
        await report(
            agent, framework_id, child.task_id, state=task_pb2.TASK_RUNNING, sequence=2,
            data=b"\0x", labels=[task_pb2.Label(key="a", value="b")],
        )  # fmt: skip
        running = await scheduler.update("TASK_RUNNING")
        assert running["task_id"] == {"value": "t"}
        assert running["executor_id"] == {"value": "e"}
        assert base64.b64decode(running["data"]) == b"\0x"
        assert running["labels"] == {"labels": [{"key": "a", "value": "b"}]}

        named = {"executor_id": {"value": "e"}, "agent_id": offer["agent_id"]}
        assert await scheduler.call("MESSAGE", data="AAEC", **named) == (202, "")
        order = (await agent.next("executor_message")).executor_message
        assert (order.task_id, order.data) == (executor.task_id, b"\0\1\2")
        said = agent_pb2.ExecutorMessage(
            framework_id=framework_id, task_id=executor.task_id, data=b"hello"
        )
        await agent.send(agent_pb2.Report(executor_message=said))
        message = (await scheduler.next("MESSAGE"))["message"]
        assert message == {**named, "data": base64.b64encode(b"hello").decode()}
        lost = {**named, "executor_id": {"value": "none"}}
        assert await scheduler.call("MESSAGE", data="AAEC", **lost) == (202, "")
        assert (await scheduler.call("MESSAGE", data="?", **named))[0] == 400

        assert await scheduler.call("SHUTDOWN", **named) == (202, "")
        assert (await agent.next("kill")).kill.task_id == executor.task_id
        await report(
            agent, framework_id, executor.task_id, state=task_pb2.TASK_FAILED, sequence=2,
            exit_code=3,
        )  # fmt: skip
        assert (await scheduler.next("FAILURE"))["failure"] == {**named, "status": 3 << 8}
        assert not [
            each
            for each in scheduler.heard
            if each["type"] == "UPDATE"
            and each["update"]["status"]["task_id"]["value"] == executor.task_id
        ]


async def test_an_executor_is_found_again_after_a_new_subscribe(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe()
        await agent.register(isolation=FEATURES)
        offer = await scheduler.offer()
        await scheduler.accept(offer, in_executor(offer, "one"))
        executor, _ = await launched(agent), await launched(agent)
        async with RawScheduler(gateway(master)) as again:
            await again.subscribe(scheduler.framework_id)
            offer = await again.offer()
            await again.accept(offer, in_executor(offer, "two"), in_executor(offer, "x", "other"))
            assert (await launched(agent)).executor_id == executor.task_id
            other = await launched(agent)
            assert executor_id_in(other.task_id, agent.agent_id) == "other"


async def test_a_refusal_tells_how_agents_run_executors_of_mesos(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe()
        await agent.register(isolation=["executors", "groups"])
        offer = await scheduler.offer()
        await scheduler.accept(offer, in_executor(offer, "one"))
        status = (await scheduler.next("UPDATE"))["update"]["status"]
        assert "cannot enforce mesos-executors" in status["message"]
        assert "agents started with --mesos-listen run executors of Mesos" in status["message"]


async def test_a_task_is_refused_with_its_executor(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe()
        await agent.register(isolation=FEATURES)
        offer = await scheduler.offer()
        large = [scalar("cpus", 100)]
        await scheduler.accept(
            offer,
            in_executor(offer, "one", resources=large),
            in_executor(offer, "two", "x" * 240),
            in_executor(offer, "three", "f", command={"uris": [{"value": "http://x"}]}),
        )
        found = {}
        for _ in range(3):
            status = (await scheduler.next("UPDATE"))["update"]["status"]
            assert status["state"] == "TASK_ERROR"
            found[status["task_id"]["value"]] = status["message"]
        assert "does not fit" in found["one"]
        assert "too long" in found["two"]
        assert "URIs" in found["three"]
        offer = await scheduler.offer()
        await scheduler.accept(offer, in_executor(offer, "four"))
        assert (await launched(agent)).executor.api == "mesos"


async def test_an_executor_without_any_task_is_ended(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe()
        await agent.register(isolation=FEATURES)
        offer = await scheduler.offer()
        large = [scalar("cpus", 100)]
        used = [in_executor(offer, "good", "used"), in_executor(offer, "one", "used")]
        used[1]["resources"] = large
        idle = [in_executor(offer, name, "idle") for name in ("two", "three")]
        for each in idle:
            each["resources"] = large
        await scheduler.accept(offer, *used, *idle)
        started = [await launched(agent) for _ in range(3)]
        found = {executor_id_in(each.task_id, agent.agent_id): each.task_id for each in started}
        assert set(found) == {"used", "idle", ""}
        assert (await agent.next("kill")).kill.task_id == found["idle"]
        offer = await scheduler.offer()
        await scheduler.accept(offer, in_executor(offer, "four", "idle"))
        again = await launched(agent)
        assert executor_id_in(again.task_id, agent.agent_id) == "idle"
        assert again.task_id != found["idle"]
        # The framework hears only of the end of an executor that had tasks.
        for name in ("idle", "used"):
            await report(
                agent, scheduler.framework_id, found[name], state=task_pb2.TASK_KILLED, sequence=1
            )
        failure = (await scheduler.next("FAILURE"))["failure"]
        assert failure["executor_id"] == {"value": "used"}
        assert (await launched(agent)).executor_id == again.task_id


def test_executors_that_have_ended_are_forgotten() -> None:
    executors = Executors({}, lambda: None)
    of = in_executor({"agent_id": {"value": "A1"}}, "t")
    for _ in range(3):
        executor = executors.add_to(TaskInfo(), of, "A1")
        assert executor is not None
        task_id = TaskId(executor.task_id)
        assert executors.task_of("e", "A1") == task_id
        executors.decided(task_id)
        executors.ended(task_id)
        assert not executors._by_name
        assert not executors._by_task


async def test_a_group_is_launched_whole_or_not_at_all(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe()
        await agent.register(isolation=FEATURES)

        async def launch(offer: Json, *tasks: Json, kind: str = "DEFAULT") -> None:
            executor = {"type": kind, "executor_id": {"value": "default"}}
            group = {"executor": executor, "task_group": {"tasks": tasks}}
            operation = {"type": "LAUNCH_GROUP", "launch_group": group}
            call = {"offer_ids": [offer["id"]], "operations": [operation]}
            assert await scheduler.call("ACCEPT", **call) == (202, "")

        async def refused() -> tuple[str, str]:
            status = (await scheduler.next("UPDATE"))["update"]["status"]
            assert status["state"] == "TASK_ERROR"
            assert status["reason"] == "REASON_TASK_GROUP_INVALID"
            return status["task_id"]["value"], status["message"]

        offer = await scheduler.offer()
        bad = task(offer, "b", health_check={})
        await launch(offer, task(offer, "a"), bad)
        assert await refused() == ("a", "its group is refused: health checks are not supported")
        assert await refused() == ("b", "health checks are not supported")
        await scheduler.call("REVIVE")
        offer = await scheduler.offer()
        await launch(offer, task(offer, "c"), kind="CUSTOM")
        assert (await refused())[0] == "c"
        await scheduler.call("REVIVE")
        offer = await scheduler.offer()
        await launch(offer, task(offer, "d"), task(offer, "e", resources=[scalar("cpus", 99)]))
        assert {(await refused())[0] for _ in range(2)} == {"d", "e"}
        await scheduler.call("REVIVE")
        offer = await scheduler.offer()
        await launch(offer)
        await scheduler.call("REVIVE")
        offer = await scheduler.offer()
        await launch(offer, task(offer, "f"), task(offer, "g"))
        order = (await agent.next("launch_group")).launch_group
        assert len({each.task.group.group_id for each in order.tasks}) == 1
        assert [each.task.task_id for each in order.tasks] == ["f", "g"]


def test_ids_of_executors_name_their_agents() -> None:
    made = executor_task_id("u", "a:b", "A1")
    assert executor_id_in(made, "A1") == "a:b"
    assert executor_id_in(made, "A2") == ""
    assert executor_id_in("task", "A1") == ""
    assert executor_id_in(made, "") == ""


async def test_a_task_must_not_have_the_id_of_an_executor(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe()
        await agent.register(isolation=FEATURES)
        offer = await scheduler.offer()
        await scheduler.accept(offer, task(offer, f"executor:u:e:{agent.agent_id}"))
        status = (await scheduler.next("UPDATE"))["update"]["status"]
        assert status["message"] == "the task id has the form of those of executors"


async def test_an_executor_that_lives_is_not_changed(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe()
        await agent.register(isolation=FEATURES)
        offer = await scheduler.offer()
        same = in_executor(offer, "same", framework_id=None, resources=[scalar("cpus", 1.0)])
        changed = in_executor(offer, "changed", command={"value": "other"})
        first = in_executor(offer, "first", resources=[scalar("cpus", 1)])
        await scheduler.accept(offer, first, same, changed)
        status = (await scheduler.next("UPDATE"))["update"]["status"]
        assert status["task_id"] == {"value": "changed"}
        assert status["message"] == "executor 'e' runs there with another ExecutorInfo"
        assert [(await launched(agent)).task_id for _ in range(3)][1:] == ["first", "same"]


async def test_an_executor_of_a_refused_call_is_started_by_the_next(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe()
        await agent.register(isolation=FEATURES)
        offer = await scheduler.offer()
        # With its executor one more than an ACCEPT may launch.
        launches = [[in_executor(offer, "first")], [task(offer, "x")] * 999]
        operations = [{"type": "LAUNCH", "launch": {"task_infos": each}} for each in launches]
        call = {"offer_ids": [offer["id"]], "operations": operations}
        assert (await scheduler.call("ACCEPT", **call))[0] == 400
        await scheduler.accept(offer, in_executor(offer, "second"))
        assert (await launched(agent)).executor.api == "mesos"
        assert (await launched(agent)).task_id == "second"


async def test_a_task_beside_a_refused_executor_has_its_own_error(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe()
        await agent.register(isolation=FEATURES)
        offer = await scheduler.offer()
        large = task(offer, "large", resources=[scalar("cpus", 1000)])
        await scheduler.accept(offer, in_executor(offer, "inside", "a/b"), large)
        found = {}
        for _ in range(2):
            status = (await scheduler.next("UPDATE"))["update"]["status"]
            found[status["task_id"]["value"]] = status["message"]
        assert "holds a character that ids must not have" in found["inside"]
        assert "does not fit" in found["large"]
