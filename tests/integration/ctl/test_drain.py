"""`croupier drain --wait` against a scripted master; transcripts/agents.txt tells the rest."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

import pytest

from croupier.model.errors import Unavailable
from croupier.v1 import framework_pb2
from croupier.v1 import operator_pb2 as pb
from tests.harness.command import croupier, ended, started
from tests.harness.eventually import eventually
from tests.harness.operators import ScriptedOperator, serving

LEFT = pb.Drain(
    tasks_left=2,
    estimate_ms=200_000,
    blockers=[pb.DrainBlocker(framework_id="m-F1", task_id="t1", reason="its agent sleeps")],
)


def view(drain: pb.Drain) -> pb.AgentView:
    agent = framework_pb2.AgentDescription(agent_id="m-A1", hostname="h1")
    return pb.AgentView(agent=agent, state="connected", tasks=2, drain=drain)


@pytest.fixture
async def operator() -> AsyncIterator[ScriptedOperator]:
    async with serving(ScriptedOperator()) as operator:
        operator.answers |= {
            pb.ListAgentsRequest: pb.ListAgentsResponse(agents=[view(LEFT)]),
            pb.DrainAgentRequest: pb.DrainAgentResponse(agent=view(LEFT)),
        }
        yield operator


def asked(operator: ScriptedOperator, kind: type) -> list[object]:
    return [request for request in operator.asked if isinstance(request, kind)]


async def test_a_drain_is_followed_to_its_end(operator: ScriptedOperator) -> None:
    async with started("drain", "h1", "--wait", "--master", operator.address) as process:
        await eventually(lambda: len(asked(operator, pb.ListAgentsRequest)) > 1, 20)
        agents = [view(pb.Drain(done=True))]
        operator.answers[pb.ListAgentsRequest] = pb.ListAgentsResponse(agents=agents)
        done = await ended(process)
    assert (done.code, done.err) == (0, "")
    first, blocker, last = done.out.splitlines()
    assert "2 tasks left" in first
    assert "t1" in blocker
    assert last == "agent h1 (m-A1) is drained: it has no tasks left, and gets no offers"


async def test_the_drain_stays_on_when_the_command_stops(operator: ScriptedOperator) -> None:
    master = ("--master", operator.address)
    done = await croupier("drain", "h1", "--wait", "--timeout", "1s", *master)
    assert done.code == 3
    assert "is still on; croupier agent reactivate m-A1 ends it" in done.err
    async with started("drain", "h1", "--wait", *master) as process:
        before = len(asked(operator, pb.ListAgentsRequest))
        await eventually(lambda: len(asked(operator, pb.ListAgentsRequest)) > before + 1, 20)
        process.send_signal(signal.SIGINT)
        done = await ended(process)
    assert done.code == 130
    assert "is still on" in done.err


async def test_a_drain_is_followed_through_the_loss_of_the_master(
    operator: ScriptedOperator,
) -> None:
    async with started("drain", "h1", "--wait", "--master", operator.address) as process:
        await eventually(lambda: len(asked(operator, pb.ListAgentsRequest)) > 1, 20)
        operator.answers[pb.ListAgentsRequest] = Unavailable("the term is over")
        before = len(asked(operator, pb.GetMasterRequest))
        await eventually(lambda: len(asked(operator, pb.GetMasterRequest)) > before + 1, 20)
        agents = [view(pb.Drain(done=True))]
        operator.answers[pb.ListAgentsRequest] = pb.ListAgentsResponse(agents=agents)
        done = await ended(process)
    assert done.out.count("the drain continues") == 1
    assert "is drained" in done.out
    assert done.code == 0
