"""The agent protocol over real gRPC: registration, pages, updates, drains and other operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest

from croupier.master.config import StoreChoice
from croupier.master.core.state import State
from croupier.master.flags import AdmissionFlags
from croupier.master.services import agent as agent_service
from croupier.model.ids import AgentId
from croupier.net.transport import make_channel
from croupier.v1 import agent_pb2 as pb
from croupier.v1 import framework_pb2, operator_pb2, resources_pb2, task_pb2
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.eventually import eventually
from tests.harness.masters import RawAgent, RawFramework, StreamEnded, running_master
from tests.integration.master.test_frameworks import launch, make_task


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"resources": resources_pb2.Resources()}, "no resources"),
        ({"resources": resources_pb2.Resources(cpus_milli=-1)}, "negative"),
        ({"hostname": ""}, "hostname"),
        ({"agent_id": "../x"}, "must not have"),
        ({"attributes": [resources_pb2.Attribute(name="a")]}, "no value"),
        ({"attributes": [resources_pb2.Attribute(name="", text="x")]}, "not the name"),
    ],
)
async def test_invalid_registration_is_refused_with_the_field(
    fields: dict[str, object], expected: str, agent: RawAgent
) -> None:
    with pytest.raises(StreamEnded):
        await agent.register(**fields)  # type: ignore[arg-type]
    assert expected in await agent._stream.details()
    assert await agent._stream.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_report_before_register_ends_the_stream(agent: RawAgent) -> None:
    await agent.send(pb.Report(updates=pb.StatusUpdates()))
    assert (await agent.next("error")).error.code == framework_pb2.ERROR_CODE_PROTOCOL


async def test_ids_survive_a_master_restart(tmp_path: Path) -> None:
    store = StoreChoice(tmp_path / "master.db")
    async with running_master(store=store) as master:
        async with RawAgent(master.address) as agent, RawFramework(master.address) as framework:
            agent_id = await agent.register()
            framework_id = (await framework.subscribe(roles=["ads"])).framework_id
        async with RawFramework(master.address) as gone:
            removed_id = (await gone.subscribe()).framework_id
            await gone.call(teardown=framework_pb2.Teardown())
    async with running_master(store=store) as master:
        known = await master.driver.read(lambda state: (set(state.agents), set(state.frameworks)))
        assert known == ({agent_id}, {framework_id})
        async with RawAgent(master.address) as agent, RawFramework(master.address) as framework:
            assert await agent.register(agent_id=agent_id) == agent_id
            subscribed = await framework.subscribe(roles=["ads"], framework_id=framework_id)
            assert subscribed.framework_id == framework_id
            offer = await framework.offer()
            assert offer.offer_id.startswith(subscribed.master_id)
        async with RawFramework(master.address) as gone:
            with pytest.raises(StreamEnded):
                await gone.subscribe(framework_id=removed_id)
        # Ids are never reused.
        async with RawFramework(master.address) as new:
            assert (await new.subscribe()).framework_id not in (framework_id, removed_id)


# The tasks of these tests were launched by no master.
ADOPTING = AdmissionFlags(adopt_unproven=60)


def running(task_id: str) -> pb.AgentTask:
    status = task_pb2.TaskStatus(
        framework_id="f",
        task_id=task_id,
        agent_id="a",
        sequence=1,
        state=task_pb2.TASK_RUNNING,
        source=task_pb2.SOURCE_EXECUTOR,
    )
    return pb.AgentTask(framework_id="f", task=make_task(task_id, 10), latest=status, role="*")


def page(*task_ids: str) -> pb.Report:
    return pb.Report(register_page=pb.RegisterPage(tasks=map(running, task_ids)))


def last(pages: int, *task_ids: str) -> pb.Report:
    amount = resources_pb2.Resources(cpus_milli=100_000, mem_milli=2**34)
    register = pb.Register(
        agent_id="a", hostname="h", resources=amount, tasks=map(running, task_ids), pages=pages
    )
    return pb.Report(register=register)


def known_tasks(state: State) -> list[str]:
    agent = state.agents.get(AgentId("a"))
    return [] if agent is None else [task_id for _, task_id in agent.tasks]


async def test_pages_take_effect_with_register() -> None:
    async with running_master(admission=ADOPTING) as master, RawAgent(master.address) as agent:
        await agent.send(page("t1", "t2"))
        await agent.send(page("t3"))
        await eventually(lambda: master.leadership.term().sessions.registering.used > 100)
        assert await master.driver.read(known_tasks) == []
        await agent.send(last(2, "t4"))
        assert (await agent.next("registered")).registered.agent_id == "a"
        assert await master.driver.read(known_tasks) == ["t1", "t2", "t3", "t4"]
        assert master.leadership.term().sessions.registering.used == 0


async def test_missing_page_refuses_the_registration() -> None:
    async with running_master(admission=ADOPTING) as master, RawAgent(master.address) as agent:
        await agent.send(page("t1"), last(2, "t2"))
        error = (await agent.next("error")).error
        assert error.code == framework_pb2.ERROR_CODE_PROTOCOL
        assert "1 pages came before REGISTER, not 2" in error.message
        assert await master.driver.read(known_tasks) == []
        await eventually(lambda: not master.leadership.term().sessions.registering.used)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("MAX_AGENT_TASKS", 2, framework_pb2.ERROR_CODE_INVALID),
        ("MAX_BYTES", 100, framework_pb2.ERROR_CODE_INVALID),
        ("COMPLETE_S", 0.1, framework_pb2.ERROR_CODE_TOO_SLOW),
    ],
)
async def test_pages_of_one_agent_are_bounded(
    name: str, value: float, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_service, name, value)
    async with running_master(admission=ADOPTING) as master, RawAgent(master.address) as agent:
        await agent.send(page("t1"), page("t2", "t3"))
        assert (await agent.next("error")).error.code == code
        await eventually(lambda: not master.leadership.term().sessions.registering.used)


async def test_pages_of_all_agents_share_one_budget() -> None:
    async with running_master(admission=ADOPTING) as master, RawAgent(master.address) as agent:
        budget = master.leadership.term().sessions.registering
        budget.used += 2**40
        await agent.send(page("t1"))
        assert (await agent.next("error")).error.code == framework_pb2.ERROR_CODE_TOO_SLOW
        await eventually(lambda: budget.used == 2**40)


async def test_message_above_2_mib_ends_the_stream() -> None:
    large = pb.Report(goodbye=pb.Goodbye(message="x" * 2_100_000))
    request = pb.AgentServiceConnectRequest(reports=[large])
    async with (
        running_master(admission=ADOPTING) as master,
        grpc.aio.insecure_channel(str(master.address)) as channel,
    ):
        call: Any = channel.stream_stream("/croupier.v1.AgentService/Connect")()
        await call.write(request.SerializeToString())
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def killed(framework: RawFramework, agent: RawAgent) -> pb.Report:
    """Return the report that `t1` was killed."""
    status = task_pb2.TaskStatus(
        framework_id=framework.framework_id,
        task_id="t1",
        agent_id=agent.agent_id,
        state=task_pb2.TASK_KILLED,
        source=task_pb2.SOURCE_EXECUTOR,
        reason=task_pb2.REASON_AGENT_DRAINING,
        sequence=1,
    )
    return pb.Report(updates=pb.StatusUpdates(statuses=[status]))


async def launched(framework: RawFramework, agent: RawAgent) -> None:
    """Launch `t1` on the agent."""
    unit = make_task("x").resources
    await framework.subscribe(demands=[framework_pb2.Demand(unit=unit, count=1)])
    await agent.register()
    offer = await framework.offer()
    verdict = await framework.call(accept=launch([offer.offer_id], make_task("t1")))
    assert not verdict.HasField("error")


async def test_drain_reports_progress_and_survives_a_master_restart(tmp_path: Path) -> None:
    kept: dict[str, Any] = {"store": StoreChoice(tmp_path / "master.db")}
    async with (
        running_master(**kept) as master,
        make_channel(master.address) as channel,
        RawAgent(master.address) as agent,
        RawFramework(master.address) as framework,
    ):
        operator = OperatorServiceStub(channel)
        await launched(framework, agent)
        request = operator_pb2.DrainAgentRequest(agent="raw", grace_ms=1000)
        view = (await operator.DrainAgent(request)).agent
        assert view.agent.agent_id == agent.agent_id
        assert (view.drain.done, view.drain.tasks_left, view.drain.grace_ms) == (False, 1, 1000)
        assert view.drain.estimate_ms <= 1000
        kill = (await agent.next("kill")).kill
        assert kill.reason == task_pb2.REASON_AGENT_DRAINING
        await agent.send(killed(framework, agent))
        await framework.next("update")
        (view,) = (await operator.ListAgents(operator_pb2.ListAgentsRequest())).agents
        assert (view.drain.done, view.state) == (True, "connected")
        (blocker,) = view.drain.blockers
        assert blocker.task_id == "t1"
        url = f"http://{master.http_address}/metrics"
        async with aiohttp.ClientSession() as web, web.get(url) as scraped:
            page = await scraped.text()
        assert 'croupier_agents_withheld{why="drained"} 1.0' in page
        assert "croupier_agents_drained_total 1.0" in page
        explain = operator_pb2.ExplainRequest(
            framework_id=framework.framework_id, agent_id=agent.agent_id
        )
        (reason,) = (await operator.Explain(explain)).reasons
        assert reason.cause == "agent is being drained"
    async with running_master(**kept) as master, make_channel(master.address) as channel:
        operator = OperatorServiceStub(channel)
        (view,) = (await operator.ListAgents(operator_pb2.ListAgentsRequest())).agents
        assert view.HasField("drain")
        assert view.decided_in_ms > 0
        answer = await operator.ReactivateAgent(operator_pb2.ReactivateAgentRequest(agent="raw"))
        assert not answer.agent.HasField("drain")
