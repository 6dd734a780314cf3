"""Several roles, several demands, and preemption, against a fake master over real gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from croupier.sdk import (
    Conflict,
    Demand,
    InvalidRequest,
    NotFound,
    PreemptRequest,
    Reason,
    Resources,
    Role,
    Task,
    TaskState,
    equals,
    matches,
    not_matches,
)
from croupier.sdk.testing import FakeMaster
from tests.harness.eventually import eventually
from tests.integration.sdk.recorder import UNIT, Recorder, running, task

LARGE = Resources.parse("cpus:4;mem:1GB")
ADS, WEB = Role("ads/prod"), Role("web")
SEVERAL = (
    Demand(UNIT, 5, (matches("hostname", r"node-\d+"), not_matches("rack", "r[89]"))),
    Demand(LARGE, 3, min_per_offer=2, max_per_offer=3, role=WEB),
)


class Preempted(Recorder):
    """A framework that records preemption requests."""

    def __init__(self, master: str, **more: Any) -> None:
        super().__init__(master, **more)
        self.requests: list[PreemptRequest] = []

    async def on_preempt(self, request: PreemptRequest) -> None:
        self.requests.append(request)
        if request.reason == "a bug":
            raise RuntimeError("a bug")


async def test_subscribe_names_all_roles_and_demands(master: FakeMaster) -> None:
    framework = Recorder(master.address, roles=[ADS, WEB], demands=SEVERAL)
    running_task = asyncio.create_task(framework.run())
    call = await master.subscribed()
    assert call.roles == (ADS, WEB)
    assert call.demands == SEVERAL
    assert (call.suppressed, call.suppressed_roles) == (False, ())
    await framework.stop()
    await running_task


async def test_an_offer_names_its_role(master: FakeMaster) -> None:
    framework = Recorder(master.address, roles=[ADS, WEB])
    async with running(framework, master):
        master.offer("cpus:1", role=WEB)
        master.offer("cpus:1")
        assert [(await framework.next_offer()).role for _ in range(2)] == [WEB, ADS]
        with pytest.raises(Conflict, match="dev"):
            master.offer("cpus:1", role="dev")


async def test_offers_in_several_roles_are_not_accepted_together(master: FakeMaster) -> None:
    framework = Recorder(master.address, roles=[ADS, WEB], demands=SEVERAL)
    async with running(framework, master):
        for role in (ADS, WEB):
            master.offer("cpus:8;mem:8GB", role=role)
        offers = [await framework.next_offer() for _ in range(2)]
        verdicts = await framework.accept(offers, [task("t1")])
        assert [v.ok for v in verdicts] == [False]
        assert isinstance(verdicts[0].error, InvalidRequest)
        assert "several roles" in str(verdicts[0].error)
        assert master.demands == SEVERAL


async def test_each_shape_is_counted_down_by_its_own_tasks(master: FakeMaster) -> None:
    framework = Recorder(master.address, roles=[ADS, WEB])
    async with running(framework, master):
        await framework.demands(SEVERAL)
        assert master.demands == SEVERAL
        master.offer("cpus:8;mem:8GB", role=WEB)
        large = [Task(["true"], resources=LARGE) for _ in range(2)]
        await framework.accept(await framework.next_offer(), large)
        await framework.launch(master, task(), task(), task())
        assert [demand.count for demand in master.demands] == [2, 1]
        master.disconnect()
        again = await master.subscribed()
        assert [demand.count for demand in again.demands] == [2, 1]
        await framework.demands([])
        assert not master.demands


async def test_one_unit_under_two_constraints_is_counted_where_the_agent_passes() -> None:
    zones = [Demand(UNIT, 5, (equals("zone", zone),)) for zone in ("a", "b")]
    async with FakeMaster() as master:
        framework = Recorder(master.address, demands=zones)
        async with running(framework, master):
            master.offer(UNIT, attributes={"zone": "b"})
            assert (await framework.accept(await framework.next_offer(), [task()]))[0].ok
            assert [demand.count for demand in master.demands] == [5, 4]
            master.disconnect()
            again = await master.subscribed()
            assert [demand.count for demand in again.demands] == [5, 4]


async def test_roles_are_suppressed_and_revived_one_by_one(master: FakeMaster) -> None:
    framework = Recorder(master.address, roles=[ADS, WEB])
    async with running(framework, master):
        await framework.suppress(WEB)
        assert master.suppressed_roles == {WEB}
        assert (await master.next_call("suppress")).roles == (WEB,)
        master.disconnect()
        again = await master.subscribed()
        assert (again.suppressed, again.suppressed_roles) == (False, (WEB,))
        await framework.suppress()
        assert master.is_suppressed
        master.disconnect()
        again = await master.subscribed()
        assert (again.suppressed, again.suppressed_roles) == (True, ())
        await framework.revive(WEB)
        assert master.suppressed_roles == {ADS}
        await framework.revive()
        assert not master.suppressed_roles
        with pytest.raises(InvalidRequest, match="dev"):
            await framework.suppress("dev")


async def test_a_preemption_request_has_its_deadline(master: FakeMaster) -> None:
    framework = Preempted(master.address, roles=[ADS, WEB])
    async with running(framework, master):
        master.offer("cpus:8;mem:8GB", agent_id="a7", role=WEB)
        await framework.accept(await framework.next_offer(), [task("t1"), task("t2")])
        master.preempt("t2", "t1", grace_s=200, reason="role dev is owed cpus:2")
        await eventually(lambda: framework.requests)
        request = framework.requests[0]
        assert request.task_ids == ("t2", "t1")
        assert (request.agent_id, request.role) == ("a7", WEB)
        assert (request.grace_s, request.reason) == (200.0, "role dev is owed cpus:2")
        assert 100 < request.expires_in_s <= 200
        await master.update("t1", TaskState.KILLED, reason=Reason.KILLED_BY_FRAMEWORK)
        await eventually(lambda: framework.states == [("t1", "KILLED")])


async def test_a_preemption_that_is_not_handled_changes_nothing(master: FakeMaster) -> None:
    framework = Preempted(master.address)
    async with running(framework, master):
        await framework.launch(master, task("t1"))
        master.preempt("t1", grace_s=0, reason="a bug")
        master.preempt("t1", grace_s=0)
        await eventually(lambda: len(framework.requests) == 2)
        assert framework.requests[0].expires_in_s == 0
        with pytest.raises(NotFound):
            master.preempt("t2")
        with pytest.raises(Conflict):
            master.preempt()


async def test_a_framework_that_ignores_the_request_is_preempted(
    master: FakeMaster, framework: Recorder
) -> None:
    await framework.launch(master, task("t1"))
    master.preempt("t1")
    await master.update("t1", TaskState.KILLED)
    await master.acknowledged("t1", 1)


async def test_refused_demands_leave_the_earlier_ones_in_force(master: FakeMaster) -> None:
    framework = Recorder(master.address, roles=[ADS, WEB], demands=SEVERAL)
    async with running(framework, master):
        master.refuse_next(InvalidRequest("no"))
        with pytest.raises(InvalidRequest, match="no"):
            await framework.demands([Demand(UNIT, 1)])
        master.disconnect()
        assert (await master.subscribed()).demands == SEVERAL
