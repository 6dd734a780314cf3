"""Calls of operators about tasks, offers and roles."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from pathlib import Path

import aiohttp
import grpc
import grpc.aio
import pytest

from croupier.master.app import MasterDaemon
from croupier.master.config import StoreChoice
from croupier.master.core.state import State
from croupier.master.core.tasks import TaskSnapshot
from croupier.master.weights import Weights
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.model.task import Command, TaskInfo, TaskState, TaskStatus
from croupier.net.transport import make_channel
from croupier.v1 import framework_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from croupier.wire.resources import resources_to_wire
from croupier.wire.roles import settings_from_wire, settings_to_wire
from tests.harness.eventually import eventually
from tests.harness.masters import RawAgent, RawFramework, running_master
from tests.integration.master.test_frameworks import launch, make_task


def _end(task: TaskSnapshot, state: State) -> None:
    state.ended.add(task)


async def refused(answer: Awaitable[object], code: grpc.StatusCode) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await answer
    assert refusal.value.code() is code
    return refusal.value.details() or ""


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


UNIT = framework_pb2.Demand(unit=resources_to_wire(Resources.parse("cpus:1;mem:1GB")))


def change(role: str, settings: RoleSettings | None = None, *parts: int) -> pb.RoleChange:
    wire = None if settings is None else settings_to_wire(settings)
    return pb.RoleChange(
        role=role, settings=wire, parts=[pb.RoleChange.Part.ValueType(p) for p in parts]
    )


def update(*changes: pb.RoleChange, dry_run: bool = False) -> pb.UpdateRolesRequest:
    return pb.UpdateRolesRequest(changes=changes, dry_run=dry_run)


async def listed(operator: OperatorServiceStub) -> dict[str, pb.RoleView]:
    answer = await operator.ListRoles(pb.ListRolesRequest())
    return {view.role: view for view in answer.roles}


async def test_role_settings_take_effect_and_survive_a_restart(tmp_path: Path) -> None:
    options = {
        "store": StoreChoice(tmp_path / "master.db"),
        "weights": Weights.parse("ads=2,web=3"),
    }
    settings = RoleSettings(
        5000,
        {"cpus": 500},
        {"cpus": 1000},
        {"cpus": 2000, "gpus": 0},
        preemption=True,
        half_life_ms=604_800_000,
    )
    async with running_master(**options) as master, make_channel(master.address) as channel:
        operator = OperatorServiceStub(channel)
        would = await operator.UpdateRoles(update(change("ads/prod", settings), dry_run=True))
        assert would.dry_run
        assert settings_from_wire(would.roles[0].after.settings) == settings
        assert list(await listed(operator)) == ["ads", "web"]
        did = await operator.UpdateRoles(update(change("ads/prod", settings)))
        assert (did.dry_run, did.roles) == (False, would.roles)
        await operator.UpdateRoles(
            update(change("web", RoleSettings(4000), pb.RoleChange.PART_WEIGHT))
        )
        assert list(await listed(operator)) == ["ads", "ads/prod", "web"]
    async with running_master(**options) as master, make_channel(master.address) as channel:
        operator = OperatorServiceStub(channel)
        roles = await listed(operator)
        assert settings_from_wire(roles["ads/prod"].settings) == settings
        assert [view.settings.weight_milli for view in roles.values()] == [2000, 5000, 4000]
        await operator.UpdateRoles(update(change("web"), change("ads/prod")))
        roles = await listed(operator)
        assert {role: view.settings.weight_milli for role, view in roles.items()} == {
            "ads": 2000,
            "web": 3000,
        }


async def test_metrics_export_role_settings() -> None:
    async with running_master() as master, make_channel(master.address) as channel:
        operator = OperatorServiceStub(channel)
        settings = RoleSettings(2000, guarantee={"cpus": 1500}, limit={"mem": 1024_000})
        await operator.UpdateRoles(update(change("ads/prod", settings)))
        url = f"http://{master.http_address}/metrics"
        async with aiohttp.ClientSession() as web, web.get(url) as answer:
            lines = (await answer.text()).splitlines()
    for line in (
        'croupier_role_weight{role="ads/prod"} 2.0',
        'croupier_role_weight_factor{role="ads/prod"} 1.0',
        'croupier_role_guarantee{resource="cpus",role="ads/prod"} 1.5',
        'croupier_role_limit{resource="mem",role="ads/prod"} 1.073741824e+09',
        'croupier_role_dominant_share{role="ads/prod"} 0.0',
        'croupier_role_entitlement{role="ads/prod"} 0.0',
        "croupier_role_changes_total 1.0",
    ):
        assert line in lines, line


@pytest.mark.parametrize("in_pool", [True, False])
async def test_explain_names_a_disconnected_agent(in_pool: bool) -> None:
    options = {} if in_pool else {"agent_timeout": 0.2, "heartbeat": 0.1}
    async with (
        running_master(**options) as master,
        make_channel(master.address) as channel,
        RawFramework(master.address) as framework,
    ):
        operator = OperatorServiceStub(channel)
        async with RawAgent(master.address) as agent:
            agent_id = await agent.register()
            await framework.subscribe(roles=["ads"], demands=[UNIT])
        request = pb.ExplainRequest(framework_id=framework.framework_id, agent_id=agent_id)

        async def is_away() -> bool:
            (reason,) = (await operator.Explain(request)).reasons
            return reason.cause == "agent is away"

        await eventually(is_away)
