"""Registration in pages: the master takes all pages at once or none."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest

from croupier.master.core.state import State
from croupier.master.flags import AdmissionFlags
from croupier.master.services import agent as agent_service
from croupier.model.ids import AgentId
from croupier.v1 import agent_pb2 as pb
from croupier.v1 import framework_pb2, resources_pb2, task_pb2
from tests.harness.eventually import eventually
from tests.harness.masters import RawAgent, running_master
from tests.integration.master.test_frameworks import make_task

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
