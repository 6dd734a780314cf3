"""Each call, against a fake master over real gRPC."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from croupier.sdk import (
    Framework,
    InvalidRequest,
    NotFound,
    Resources,
    Task,
    TaskState,
    Unavailable,
    equals,
    not_exists,
)
from croupier.sdk.settings import Settings
from croupier.sdk.testing import FakeMaster
from tests.harness.eventually import eventually
from tests.integration.sdk.recorder import HASTY, UNIT, Recorder, running, task


async def test_subscribe_carries_the_frameworks_identity(master: FakeMaster) -> None:
    framework = Recorder(
        master.address,
        name="f",
        role="ads/prod",
        demand=UNIT,
        demand_count=3,
        constraints=[equals("rack", "r1")],
        offer_lease_s=20.0,
        failover_timeout_s=60.0,
    )
    running_task = asyncio.create_task(framework.run())
    call = await master.subscribed()
    assert (call.name, call.role) == ("f", "ads/prod")
    assert (call.failover_timeout_s, call.offer_lease_s) == (60.0, 20.0)
    assert call.demand is not None
    assert str(call.demand) == f"3 <{UNIT}>, rack equals r1"
    assert call.client_id
    assert not call.suppressed
    await eventually(lambda: framework.subscriptions == ["fake-1-F1"])
    assert framework.framework_id == "fake-1-F1"
    await framework.stop()
    await running_task
    assert master.calls == ()


async def test_an_offer_has_the_description_of_its_agent(master: FakeMaster) -> None:
    framework = Recorder(master.address, role="ads")
    async with running(framework, master):
        offer_id = master.offer(
            "cpus:4;mem:1GB;ports:[31000-31009]",
            agent_id="a7",
            hostname="host7",
            attributes={"rack": "r1"},
            lease_s=700.0,
            http_address="10.0.0.7:5081",
        )
        again = master.offer("cpus:1", agent_id="a7", hostname="host7", attributes={"rack": "r1"})
        offer = await framework.next_offer()
        assert (offer.id, offer.agent_id, offer.hostname) == (offer_id, "a7", "host7")
        assert offer.resources == Resources.parse("cpus:4;mem:1GB;ports:[31000-31009]")
        assert (offer.attributes, offer.role) == ({"rack": "r1"}, "ads")
        assert offer.http_address == "10.0.0.7:5081"
        assert 600 < offer.expires_in_s <= 700
        second = await framework.next_offer()
        assert (second.id, second.attributes) == (again, {"rack": "r1"})


async def test_accept_launches_tasks_on_several_offers_of_an_agent(
    master: FakeMaster, framework: Recorder
) -> None:
    offers = []
    for _ in range(2):
        master.offer("cpus:1;mem:64MB")
        offers.append(await framework.next_offer())
    tasks = [
        Task(shell="echo $A", resources=UNIT, task_id="t1", name="one", env={"A": "b"}),
        Task(["true"], resources=UNIT, task_id="t2", labels={"k": "v"}),
        task("t3"),
    ]
    verdicts = await framework.accept(offers, tasks, refuse_s=1.5)
    assert [(v.task_id, v.ok) for v in verdicts] == [("t1", True), ("t2", True), ("t3", False)]
    assert isinstance(verdicts[2].error, InvalidRequest)
    call = await master.next_call("accept")
    assert call.offer_ids == ("fake-1-O1", "fake-1-O2")
    assert call.tasks == tuple(t.info for t in tasks)
    assert call.refuse_s == 1.5
    assert master.task_state("t1") is TaskState.STAGING
    assert master.calls == ()


async def test_a_task_id_is_not_used_twice(master: FakeMaster, framework: Recorder) -> None:
    verdicts = await framework.launch(master, task("t1"), task("t1"))
    assert [v.ok for v in verdicts] == [True, False]


async def test_accept_without_tasks_is_a_decline(master: FakeMaster, framework: Recorder) -> None:
    offer_id = master.offer("cpus:4;mem:1GB")
    assert await framework.accept(await framework.next_offer(), [], refuse_s=2.0) == []
    call = await master.next_call("decline")
    assert (call.offer_ids, call.refuse_s) == ((offer_id,), 2.0)


async def test_a_refused_accept_carries_the_error_to_each_task(
    master: FakeMaster, framework: Recorder
) -> None:
    master.offer("cpus:4;mem:1GB")
    master.refuse_next(Unavailable("later"))
    verdicts = await framework.accept(await framework.next_offer(), [task("t1")])
    assert isinstance(verdicts[0].error, Unavailable)


async def test_decline_carries_a_reason_and_ignores_ended_offers(
    master: FakeMaster, framework: Recorder
) -> None:
    master.offer("cpus:4;mem:1GB")
    offer = await framework.next_offer()
    await framework.decline(offer, refuse_s=0, reason="too small")
    call = await master.next_call("decline")
    assert (call.refuse_s, call.reason) == (0.0, "too small")
    await framework.decline(offer)


async def test_offers_that_are_not_overridden_are_declined(master: FakeMaster) -> None:
    framework = Framework(master=master.address)
    async with running(framework, master):
        offer_id = master.offer("cpus:4;mem:1GB")
        call = await master.next_call("decline")
        assert (call.offer_ids, call.refuse_s) == ((offer_id,), 5.0)


async def test_demand_is_replaced_and_counted_down(master: FakeMaster, framework: Recorder) -> None:
    await framework.demand(UNIT, 5, [not_exists("gpu")])
    assert str(master.demand) == f"5 <{UNIT}>, gpu not exists"
    await framework.launch(master, task(), task())
    assert master.demand is not None
    assert master.demand.count == 3
    await framework.demand(None)
    assert str(master.demand) == "None"
    master.refuse_next(InvalidRequest("no"))
    with pytest.raises(InvalidRequest, match="no"):
        await framework.demand(UNIT)


async def test_suppress_and_revive(master: FakeMaster, framework: Recorder) -> None:
    await framework.suppress()
    assert master.is_suppressed
    await framework.revive()
    assert not master.is_suppressed


async def test_kill(master: FakeMaster, framework: Recorder) -> None:
    await framework.launch(master, task("t1"))
    await framework.kill("t1", grace_s=0.25)
    call = await master.next_call("kill")
    assert (call.task_ids, call.grace_s) == (("t1",), 0.25)
    await framework.kill("t1")
    assert (await master.next_call("kill")).grace_s is None
    with pytest.raises(NotFound):
        await framework.kill("t2")


async def test_reconcile_is_always_answered(master: FakeMaster, framework: Recorder) -> None:
    await framework.launch(master, task("t1"))
    await framework.reconcile(["t1", "t2"])
    await eventually(lambda: len(framework.statuses) == 2)
    assert framework.states == [("t1", "STAGING"), ("t2", "UNKNOWN")]
    await framework.reconcile()
    await eventually(lambda: len(framework.statuses) == 3)
    await framework.reconcile([])
    kinds = [call.kind for call in master.calls]
    assert kinds == ["accept", "reconcile", "reconcile"], "no call is made for an empty list"


async def test_the_sdk_refuses_a_call_larger_than_the_master_accepts() -> None:
    async with FakeMaster(max_message_bytes=2000) as master:
        framework = Recorder(master.address)
        async with running(framework, master):
            master.offer("cpus:4;mem:1GB")
            offer = await framework.next_offer()
            large = Task(["echo", "x" * 3000], resources=UNIT)
            with pytest.raises(InvalidRequest, match="bytes"):
                await framework.accept(offer, [large])
            assert master.calls == ()
            assert (await framework.accept(offer, [task("t1")]))[0].ok
            assert framework.subscriptions == ["fake-1-F1"]


async def test_many_calls_at_once_are_all_answered_in_order(
    master: FakeMaster, framework: Recorder
) -> None:
    await asyncio.gather(*(framework.reconcile([f"t{n}"]) for n in range(2000)))
    calls = [call for call in master.calls if call.kind == "reconcile"]
    assert [call.task_ids[0] for call in calls] == [f"t{n}" for n in range(2000)]
    assert [call.seq for call in calls] == sorted(call.seq for call in calls)
    assert not any(call.again for call in calls)
    assert calls[-1].verdicts_seen > 1000


async def test_the_number_of_unanswered_calls_is_bounded(master: FakeMaster) -> None:
    class Narrow(Recorder):
        _settings = replace(HASTY, unanswered_limit=20)

    framework = Narrow(master.address)
    async with running(framework, master):
        master.mute()
        waiting = [asyncio.create_task(framework.reconcile(["t"])) for _ in range(30)]
        for _ in range(4):
            await master.next_call("reconcile")
        master.disconnect()
        await asyncio.gather(*waiting)
        calls = [call for call in master.calls if call.kind == "reconcile"]
        assert [call.again for call in calls] == [True] * 4 + [False] * 26


async def test_an_unanswered_call_fails_at_its_deadline(master: FakeMaster) -> None:
    class Impatient(Recorder):
        _settings = Settings(call_timeout_s=0.2, flush_timeout_s=0.2)

    framework = Impatient(master.address)
    async with running(framework, master):
        master.mute()
        with pytest.raises(Unavailable, match="reconcile"):
            await framework.reconcile()


async def test_the_deadline_does_not_run_while_disconnected() -> None:
    class Impatient(Recorder):
        _settings = replace(HASTY, call_timeout_s=1.0)

    async with FakeMaster() as master:
        port = int(master.address.rpartition(":")[2])
        framework = Impatient(master.address)
        running_task = asyncio.create_task(framework.run())
        await master.subscribed()
    call = asyncio.create_task(framework.revive())
    done, _ = await asyncio.wait([call], timeout=1.5)
    assert not done
    async with FakeMaster(port=port) as master:
        await call
        await framework.stop()
        await running_task


async def test_a_cancelled_call_does_not_affect_others(framework: Recorder) -> None:
    calls = [asyncio.create_task(framework.reconcile([f"t{n}"])) for n in range(3)]
    await asyncio.sleep(0)
    calls[1].cancel()
    await asyncio.gather(calls[0], calls[2])
    await framework.revive()
    assert calls[1].cancelled()
