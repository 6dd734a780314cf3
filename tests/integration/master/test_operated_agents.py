"""Operators drain agents and declare them gone, over real gRPC."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import grpc

from croupier.master.app import MasterDaemon
from croupier.master.config import StoreChoice
from croupier.net.transport import make_channel
from croupier.v1 import agent_pb2, framework_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.masters import RawAgent, RawFramework, running_master
from tests.integration.master.test_frameworks import launch, make_task
from tests.integration.master.test_operators import refused


def killed(framework: RawFramework, agent: RawAgent) -> agent_pb2.Report:
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
    return agent_pb2.Report(updates=agent_pb2.StatusUpdates(statuses=[status]))


async def launched(framework: RawFramework, agent: RawAgent) -> None:
    """Launch `t1` on the agent."""
    unit = make_task("x").resources
    await framework.subscribe(demands=[framework_pb2.Demand(unit=unit, count=1)])
    await agent.register()
    offer = await framework.offer()
    verdict = await framework.call(accept=launch([offer.offer_id], make_task("t1")))
    assert not verdict.HasField("error")


async def test_drain_reports_progress_and_survives_a_master_restart(
    tmp_path: Path,
) -> None:
    kept: dict[str, Any] = {"store": StoreChoice(tmp_path / "master.db")}
    async with (
        running_master(**kept) as master,
        make_channel(master.address) as channel,
        RawAgent(master.address) as agent,
        RawFramework(master.address) as framework,
    ):
        operator = OperatorServiceStub(channel)
        await launched(framework, agent)
        request = pb.DrainAgentRequest(agent="raw", grace_ms=1000)
        view = (await operator.DrainAgent(request)).agent
        assert view.agent.agent_id == agent.agent_id
        assert (view.drain.done, view.drain.tasks_left, view.drain.grace_ms) == (False, 1, 1000)
        assert view.drain.estimate_ms <= 1000
        kill = (await agent.next("kill")).kill
        assert kill.reason == task_pb2.REASON_AGENT_DRAINING
        await agent.send(killed(framework, agent))
        await framework.next("update")
        (view,) = (await operator.ListAgents(pb.ListAgentsRequest())).agents
        assert (view.drain.done, view.state) == (True, "connected")
        (blocker,) = view.drain.blockers
        assert blocker.task_id == "t1"
        url = f"http://{master.http_address}/metrics"
        async with aiohttp.ClientSession() as web, web.get(url) as scraped:
            page = await scraped.text()
        assert 'croupier_agents_withheld{why="drained"} 1.0' in page
        assert "croupier_agents_drained_total 1.0" in page
        explain = pb.ExplainRequest(framework_id=framework.framework_id, agent_id=agent.agent_id)
        (reason,) = (await operator.Explain(explain)).reasons
        assert reason.cause == "agent is being drained"
    async with running_master(**kept) as master, make_channel(master.address) as channel:
        operator = OperatorServiceStub(channel)
        (view,) = (await operator.ListAgents(pb.ListAgentsRequest())).agents
        assert view.HasField("drain")
        assert view.decided_in_ms > 0
        answer = await operator.ReactivateAgent(pb.ReactivateAgentRequest(agent="raw"))
        assert not answer.agent.HasField("drain")


async def test_deactivated_agent_is_offered_again_after_reactivation(
    agent: RawAgent, framework: RawFramework, operator: OperatorServiceStub
) -> None:
    await agent.register()
    request = pb.DeactivateAgentRequest(agent=agent.agent_id)
    assert (await operator.DeactivateAgent(request)).agent.deactivated
    await framework.subscribe()
    explained = await operator.Explain(pb.ExplainRequest(framework_id=framework.framework_id))
    causes = {reason.cause: reason for reason in explained.reasons}
    assert causes["agent is deactivated"].about_agent_id == agent.agent_id
    await operator.ReactivateAgent(pb.ReactivateAgentRequest(agent=agent.agent_id))
    assert (await framework.offer()).agent_id == agent.agent_id


async def test_invalid_agent_operations_are_refused(
    master: MasterDaemon, channel: grpc.aio.Channel
) -> None:
    async with RawAgent(master.address) as one, RawAgent(master.address) as two:
        operator = OperatorServiceStub(channel)
        drain = pb.DrainAgentRequest
        for name in ("unknown", "", "x" * 100_000):
            text = await refused(operator.DrainAgent(drain(agent=name)), grpc.StatusCode.NOT_FOUND)
            assert len(text) < 500
        for agent in (one, two):
            await agent.register()
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        text = await refused(operator.DrainAgent(drain(agent="raw")), invalid)
        assert one.agent_id in text
        assert two.agent_id in text
        too_long = drain(agent=one.agent_id, grace_ms=2**63)
        await refused(operator.DrainAgent(too_long), invalid)
        await operator.MarkAgentGone(pb.MarkAgentGoneRequest(agent=one.agent_id))
        conflict = grpc.StatusCode.FAILED_PRECONDITION
        gone = drain(agent=one.agent_id)
        assert "declared gone" in await refused(operator.DrainAgent(gone), conflict)
