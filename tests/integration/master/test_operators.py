"""Requests of operators over real gRPC, valid and invalid."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

import grpc
import grpc.aio
import pytest

from croupier.master.app import MasterDaemon
from croupier.master.core.state import State
from croupier.master.core.tasks import TaskSnapshot
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo, TaskState, TaskStatus
from croupier.net.transport import make_channel
from croupier.v1 import framework_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.masters import RawAgent, RawFramework, running_master
from tests.integration.master.test_frameworks import launch, make_task


def _end(task: TaskSnapshot, state: State) -> None:
    state.ended.add(task)


async def refused(answer: Awaitable[object], code: grpc.StatusCode) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await answer
    assert refusal.value.code() is code
    return refusal.value.details() or ""


async def test_unknown_ids_are_not_found(operator: OperatorServiceStub) -> None:
    not_found = grpc.StatusCode.NOT_FOUND
    text = await refused(operator.Explain(pb.ExplainRequest(framework_id="x")), not_found)
    assert text == "no framework 'x'"
    text = await refused(operator.KillTask(pb.KillTaskRequest(task_id="t")), not_found)
    assert text == "no task 't'"
    assert not (await operator.ListTasks(pb.ListTasksRequest(framework_id="x"))).tasks
    assert (await operator.GetMaster(pb.GetMasterRequest())).leader


async def test_task_is_listed_and_killed(
    master: MasterDaemon, channel: grpc.aio.Channel, agent: RawAgent
) -> None:
    async with RawFramework(master.address) as one, RawFramework(master.address) as two:
        operator = OperatorServiceStub(channel)
        for framework in (one, two):
            unit = make_task("x").resources
            await framework.subscribe(demands=[framework_pb2.Demand(unit=unit, count=1)])
        await agent.register()
        for framework in (one, two):
            offer = await framework.offer()
            verdict = await framework.call(accept=launch([offer.offer_id], make_task("same")))
            assert not verdict.HasField("error")
        listed = (await operator.ListTasks(pb.ListTasksRequest())).tasks
        assert [view.status.state for view in listed] == [task_pb2.TASK_STAGING] * 2
        ambiguous = operator.KillTask(pb.KillTaskRequest(task_id="same"))
        text = await refused(ambiguous, grpc.StatusCode.INVALID_ARGUMENT)
        assert f"{one.framework_id}, {two.framework_id}; name one" in text
        request = pb.KillTaskRequest(task_id="same", framework_id=two.framework_id)
        assert (await operator.KillTask(request)).task.framework_id == two.framework_id
        order = (await agent.next("kill")).kill
        assert (order.framework_id, order.reason) == (
            two.framework_id,
            task_pb2.REASON_KILLED_BY_OPERATOR,
        )


async def test_many_tasks_with_large_commands_are_listed_in_pages() -> None:
    """One message with all of them would have 44 MB, more than gRPC sends."""
    shell, framework_id = "x" * 400_000, FrameworkId("f")
    async with running_master() as master, make_channel(master.address) as channel:
        for number in range(110):
            task_id = TaskId(f"t{number:03}")
            info = TaskInfo(task_id, Command(shell=shell), Resources.parse("cpus:1"))
            status = TaskStatus(framework_id, task_id, AgentId("a"), TaskState.FINISHED)
            ended = TaskSnapshot(info, framework_id, Role("*"), status)
            await master.driver.read(partial(_end, ended))
        operator = OperatorServiceStub(channel)
        page = await operator.ListTasks(pb.ListTasksRequest())
        assert (len(page.tasks), page.next_page_token) == (110, "")
        assert page.ByteSize() < 20_000
        request, seen = pb.ListTasksRequest(with_commands=True), 0
        while True:
            page = await operator.ListTasks(request)
            assert page.ByteSize() < 3 * 1024 * 1024
            assert {view.task.command.shell for view in page.tasks} == {shell}
            seen += len(page.tasks)
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        assert seen == 110


async def test_listed_offers_show_their_age_and_the_rest_of_their_lease() -> None:
    async with (
        running_master(offer_lease=30.0) as master,
        make_channel(master.address) as channel,
        RawAgent(master.address) as agent,
        RawFramework(master.address) as framework,
    ):
        operator = OperatorServiceStub(channel)
        await agent.register()
        await framework.subscribe()
        made = await framework.offer()
        (view,) = (await operator.ListOffers(pb.ListOffersRequest())).offers
        assert view.offer.offer_id == made.offer_id
        assert 0 < view.offer.lease_ms < made.lease_ms == 30_000
        assert 0 <= view.age_ms <= 30_000 - view.offer.lease_ms
