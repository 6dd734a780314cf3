"""A fake master decides as the real one does: it runs the same core."""

from __future__ import annotations

import grpc.aio
import pytest

from croupier.model.task import MASTER_SEQUENCE
from croupier.sdk import Conflict, Reason, Resources, Task, TaskState, Usage
from croupier.sdk.testing import FakeMaster
from croupier.v1 import framework_pb2 as pb
from croupier.v1.framework_pb2_grpc import FrameworkServiceStub
from tests.harness.eventually import eventually
from tests.harness.invariants import check_state
from tests.integration.sdk.recorder import Recorder, running, task


def check(master: FakeMaster) -> None:
    """Assert every invariant of the core."""
    check_state(master._service.core.state)


async def test_a_gap_between_call_numbers_is_accepted() -> None:
    subscribe = pb.Subscribe(client_id="c", framework=pb.FrameworkInfo(name="f", roles=["r"]))
    async with FakeMaster() as master, grpc.aio.insecure_channel(master.address) as channel:
        stream = FrameworkServiceStub(channel).Connect()
        calls = [pb.Call(subscribe=subscribe)]
        calls += [pb.Call(seq=seq, revive=pb.Revive()) for seq in (1, 5)]
        for call in calls:
            await stream.write(pb.FrameworkServiceConnectRequest(calls=[call]))
        await master.subscribed()
        for seq in (1, 5):
            assert (await master.next_call("revive")).seq == seq
        assert master.is_connected
        stream.cancel()


async def test_the_core_stays_consistent() -> None:
    async with FakeMaster(resend_s=0.05) as master:
        framework = Recorder(master.address)
        async with running(framework, master):
            await framework.launch(master, task("t1"), task("t2"))
            master.offer("cpus:2;ports:[10-20]", attributes={"rack": "r1"})
            master.offer("cpus:2", agent_id="a2")
            check(master)
            master.fail_agent("a1")
            check(master)
            await master.update("t1", TaskState.RUNNING)
            await master.update("t1", TaskState.FINISHED)
            await master.update("t2", TaskState.GONE, from_master=True)
            await master.acknowledged("t1", 2)
            await master.acknowledged("t2", 1)
            assert master.task_state("t1") is TaskState.FINISHED
            check(master)


async def test_an_update_brings_a_failed_agent_back_with_its_other_tasks(
    master: FakeMaster, framework: Recorder
) -> None:
    await framework.launch(master, task("t1"), task("t2"))
    await master.update("t1", TaskState.RUNNING)
    await master.update("t2", TaskState.RUNNING)
    master.fail_agent("a1")
    await master.update("t1", TaskState.FINISHED)
    await eventually(lambda: ("t1", "FINISHED") in framework.states)
    assert framework.states.count(("t2", "UNREACHABLE")) == 1
    assert framework.states[-1] == ("t1", "FINISHED")
    assert master.task_state("t2") is TaskState.RUNNING
    check(master)


async def test_ports_that_a_task_uses_are_not_offered(
    master: FakeMaster, framework: Recorder
) -> None:
    master.offer("cpus:1;ports:[10-19]")
    ports = Task(["true"], resources=Resources.parse("cpus:1;ports:[10-14]"))
    [verdict] = await framework.accept(await framework.next_offer(), [ports])
    assert verdict.ok
    with pytest.raises(Conflict, match="in use"):
        master.offer("ports:[14-19]")
    master.offer("ports:[15-19]")
    check(master)


async def test_a_state_that_no_agent_reports_comes_from_the_master(
    master: FakeMaster, framework: Recorder
) -> None:
    await framework.launch(master, task("t1"))
    assert await master.update("t1", TaskState.UNREACHABLE) == 0
    assert await master.update("t1", TaskState.LOST) == MASTER_SEQUENCE
    await master.acknowledged("t1", MASTER_SEQUENCE)
    assert framework.states == [("t1", "UNREACHABLE"), ("t1", "LOST")]


async def test_no_agent_reports_a_task_that_has_ended(
    master: FakeMaster, framework: Recorder
) -> None:
    await framework.launch(master, task("t1"))
    await master.update("t1", TaskState.FINISHED)
    await master.acknowledged("t1", 1)
    with pytest.raises(Conflict, match="has ended"):
        await master.update("t1", TaskState.RUNNING)


async def test_a_new_leader_knows_the_states_of_tasks_that_ended_before() -> None:
    async with FakeMaster() as older, FakeMaster() as newer:
        framework = Recorder(f"{older.address},{newer.address}")
        async with running(framework, older):
            await framework.launch(older, task("t1"), task("t2"))
            await older.update("t1", TaskState.FINISHED)
            await older.update("t2", TaskState.LOST, from_master=True)
            await older.acknowledged("t1", 1)
            await older.acknowledged("t2", MASTER_SEQUENCE)
            newer.take_over(older)
            await newer.subscribed()
            assert newer.task_state("t1") is TaskState.FINISHED
            assert newer.task_state("t2") is TaskState.LOST
            check(newer)


async def test_a_master_that_has_stopped_may_be_stopped_again(master: FakeMaster) -> None:
    await master.__aexit__()


async def test_a_test_sees_the_secrets_of_launched_tasks(
    master: FakeMaster, framework: Recorder
) -> None:
    unit = Resources.parse("cpus:1")
    secret = Task(["a"], resources=unit, task_id="t1", secrets={"PASSWORD": "hunter2"})
    await framework.launch(master, secret)
    call = await master.next_call("accept")
    assert call.secrets["t1"].reveal() == {"PASSWORD": "hunter2"}
    assert "hunter2" not in repr(call)
    assert list(call.tasks[0].command.secrets) == ["PASSWORD"]


def limited(task_id: str) -> Task:
    return Task(["x"], resources=Resources.parse("cpus:1"), limits="pids:9", task_id=task_id)


async def test_a_task_is_refused_where_its_limits_cannot_be_enforced(
    master: FakeMaster, framework: Recorder
) -> None:
    master.offer("cpus:1", isolation=["memory"])
    offer = await framework.offers.get()
    assert offer.isolation == {"memory"}
    (refused,) = await framework.accept(offer, [limited("t1")])
    assert "cannot enforce pids" in str(refused.error)
    master.offer("cpus:1", agent_id="a2")
    offer = await framework.offers.get()
    assert limited("t2").needs <= offer.isolation
    (launched,) = await framework.accept(offer, [limited("t2")])
    assert launched.ok
    check(master)


async def test_an_update_tells_usage() -> None:
    usage = Usage(cpu_ms=5, memory_peak=2**20)
    async with FakeMaster() as master:
        framework = Recorder(master.address)
        async with running(framework, master):
            await framework.launch(master, task("t1"))
            await master.update("t1", TaskState.RUNNING)
            reason = Reason.MEMORY_LIMIT
            await master.update("t1", TaskState.FAILED, reason=reason, usage=usage)
            await eventually(lambda: ("t1", "FAILED") in framework.states)
            assert framework.statuses[-1].usage == usage
            assert framework.statuses[-1].reason.is_limit
