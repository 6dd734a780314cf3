"""The commands that drain agents and declare them gone, as processes, against a scripted master."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator

import pytest

from croupier.model.errors import InvalidRequest, NotFound, Unavailable
from croupier.v1 import framework_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from tests.harness.command import croupier, ended, started
from tests.harness.eventually import eventually
from tests.harness.operators import ScriptedOperator, serving, task_view

LEFT = pb.Drain(
    tasks_left=2,
    estimate_ms=200_000,
    blockers=[pb.DrainBlocker(framework_id="m-F1", task_id="t1", reason="its agent sleeps")],
)


def view(
    drain: pb.Drain | None = None, state: str = "connected", deactivated: bool = False
) -> pb.AgentView:
    agent = framework_pb2.AgentDescription(agent_id="m-A1", hostname="h1")
    return pb.AgentView(agent=agent, state=state, tasks=2, drain=drain, deactivated=deactivated)


@pytest.fixture
async def operator() -> AsyncIterator[ScriptedOperator]:
    async with serving(ScriptedOperator()) as operator:
        operator.answers |= {
            pb.ListAgentsRequest: pb.ListAgentsResponse(agents=[view()]),
            pb.ListTasksRequest: pb.ListTasksResponse(
                tasks=[
                    task_view("t1", task_pb2.TASK_RUNNING),
                    task_view("t0", task_pb2.TASK_FINISHED),
                ]
            ),
            pb.ListFrameworksRequest: pb.ListFrameworksResponse(
                frameworks=[
                    pb.FrameworkView(
                        framework=framework_pb2.FrameworkInfo(framework_id="m-F1", name="train")
                    )
                ]
            ),
            pb.DrainAgentRequest: pb.DrainAgentResponse(agent=view(LEFT)),
            pb.ReactivateAgentRequest: pb.ReactivateAgentResponse(agent=view()),
            pb.DeactivateAgentRequest: pb.DeactivateAgentResponse(agent=view(deactivated=True)),
            pb.MarkAgentGoneRequest: pb.MarkAgentGoneResponse(agent=view(state="gone")),
        }
        yield operator


def asked(operator: ScriptedOperator, kind: type) -> list[object]:
    return [request for request in operator.asked if isinstance(request, kind)]


async def test_a_drain_prints_the_tasks_left_and_its_blockers(operator: ScriptedOperator) -> None:
    master = ("--master", operator.address)
    for words in (["drain"], ["agent", "drain"]):
        done = await croupier(*words, "h1", "--grace", "1m30s", *master)
        assert (done.code, done.err) == (0, "")
        assert done.out.splitlines() == [
            "agent h1 (m-A1) is draining: 2 tasks left; all are killed within 3 min 20 s",
            "  t1 of m-F1: its agent sleeps",
        ]
    request = pb.DrainAgentRequest(agent="h1", grace_ms=90_000)
    assert asked(operator, pb.DrainAgentRequest) == [request, request]
    done = await croupier("drain", "h1", "--json", *master)
    assert json.loads(done.out)["drain"]["tasks_left"] == 2


async def test_a_drain_is_followed_to_its_end(operator: ScriptedOperator) -> None:
    operator.answers[pb.ListAgentsRequest] = pb.ListAgentsResponse(agents=[view(LEFT)])
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
    operator.answers[pb.ListAgentsRequest] = pb.ListAgentsResponse(agents=[view(LEFT)])
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


@pytest.mark.parametrize("agents", [[view()], []])
async def test_a_drain_ended_by_another_operator_is_exit_code_4(
    operator: ScriptedOperator, agents: list[pb.AgentView]
) -> None:
    operator.answers[pb.ListAgentsRequest] = pb.ListAgentsResponse(agents=agents)
    done = await croupier("drain", "h1", "--wait", "--master", operator.address)
    assert done.code == 4
    assert "another operator" in done.out or "has left the cluster" in done.out


async def test_a_drain_is_followed_through_the_loss_of_the_master(
    operator: ScriptedOperator,
) -> None:
    operator.answers[pb.ListAgentsRequest] = pb.ListAgentsResponse(agents=[view(LEFT)])
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


async def test_a_dry_run_changes_nothing(operator: ScriptedOperator) -> None:
    master = ("--master", operator.address)
    done = await croupier("drain", "h1", "--dry-run", *master)
    assert (done.code, done.err) == (0, "")
    assert "nothing was changed" in done.out
    assert "1 task of framework train (m-F1)" in done.out
    done = await croupier("agent", "gone", "h1", "--dry-run", *master)
    assert "  1 task is lost, and may be started elsewhere:" in done.out.splitlines()
    assert "1 task of framework train (m-F1)" in done.out
    done = await croupier("agent", "gone", "h1", "--dry-run", "--json", *master)
    assert [each["task_id"] for each in json.loads(done.out)["tasks"]] == ["t1"]
    assert not asked(operator, pb.DrainAgentRequest)
    assert not asked(operator, pb.MarkAgentGoneRequest)


async def test_gone_needs_a_confirmation(operator: ScriptedOperator) -> None:
    master = ("--master", operator.address)
    done = await croupier("agent", "gone", "h1", *master)
    assert done.code == 2
    assert "give --yes" in done.err
    assert not asked(operator, pb.MarkAgentGoneRequest)
    done = await croupier("agent", "gone", "h1", "--yes", *master)
    assert (done.code, done.out) == (0, "agent h1 (m-A1) is gone\n")
    assert asked(operator, pb.MarkAgentGoneRequest) == [pb.MarkAgentGoneRequest(agent="h1")]


async def test_gone_may_be_repeated(operator: ScriptedOperator) -> None:
    operator.answers[pb.ListAgentsRequest] = pb.ListAgentsResponse()
    done = await croupier("agent", "gone", "m-A1", "--yes", "--master", operator.address)
    assert (done.code, done.err) == (0, "")


async def test_agents_are_deactivated_reactivated_shown_and_listed(
    operator: ScriptedOperator,
) -> None:
    master = ("--master", operator.address)
    done = await croupier("agent", "deactivate", "h1", *master)
    assert done.out == "agent h1 (m-A1) is connected, deactivated\n"
    done = await croupier("--master", operator.address, "agent", "reactivate", "h1")
    assert done.out == "agent h1 (m-A1) is connected\n"
    away = view(LEFT, "disconnected", deactivated=True)
    away.decided_in_ms = 61_000
    operator.answers[pb.ListAgentsRequest] = pb.ListAgentsResponse(agents=[away])
    stands = "disconnected, draining (2 left), deactivated, given up in 1 min 1 s"
    done = await croupier("agents", *master)
    assert stands in done.out
    done = await croupier("agent", "show", "m-A1", *master)
    assert done.out.splitlines()[0] == f"agent h1 (m-A1): {stands}"
    assert "  1 task of framework train (m-F1)" in done.out.splitlines()


async def test_malformed_arguments_are_refused(operator: ScriptedOperator) -> None:
    master = ("--master", operator.address)
    for words in (["--grace", "soon"], ["--grace", "25h"], ["--timeout", "1m"], ["--grace", "-1"]):
        done = await croupier("drain", "h1", *words, *master)
        assert (done.code, done.out) == (2, ""), words
        assert len(done.err.splitlines()) == 1
    for error, code in ((NotFound("no agent"), 1), (InvalidRequest("several agents"), 1)):
        operator.answers[pb.DrainAgentRequest] = error
        done = await croupier("drain", "h1", *master)
        assert (done.code, done.out) == (code, "")
    done = await croupier("agent", "show", "h2", *master)
    assert (done.code, done.err) == (
        1,
        "croupier: no agent has the id or hostname 'h2'; croupier agents lists them\n",
    )
