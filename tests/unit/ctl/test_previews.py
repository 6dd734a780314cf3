"""What commands ask the master about an agent before they change it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from croupier.cli.connection import Master
from croupier.ctl.lists import find_agent
from croupier.ctl.previews import agent_use, teardown_preview
from croupier.model.errors import Conflict, NotFound
from croupier.v1 import operator_pb2 as pb
from croupier.v1.framework_pb2 import AgentDescription, FrameworkInfo


def agent(agent_id: str, hostname: str, state: str) -> pb.AgentView:
    return pb.AgentView(agent=AgentDescription(agent_id=agent_id, hostname=hostname), state=state)


class Lists:
    """Pretend lists. Agents A1 and A2 run a task each."""

    address = "a:1"

    def __init__(self) -> None:
        self.service = SimpleNamespace(
            ListAgents=self._agents, ListFrameworks=self._frameworks, ListTasks=self._tasks
        )

    async def ask(
        self, question: Callable[[Any], Coroutine[Any, Any, Any]], request: object
    ) -> object:
        return await question(request)

    async def _agents(self, _: pb.ListAgentsRequest) -> pb.ListAgentsResponse:
        agents = [
            agent("A1", "h1", "connected"),
            agent("A2", "h2", "unreachable"),
            agent("A3", "h2", "connected"),
            agent("A4", "h4", "connected"),
        ]
        # As of an agent of a newer release, which has an attribute of an unknown kind.
        agents[-1].agent.attributes.add(name="zone")
        return pb.ListAgentsResponse(agents=agents)

    async def _frameworks(self, _: pb.ListFrameworksRequest) -> pb.ListFrameworksResponse:
        framework = FrameworkInfo(framework_id="F1", name="train")
        return pb.ListFrameworksResponse(frameworks=[pb.FrameworkView(framework=framework)])

    async def _tasks(self, request: pb.ListTasksRequest) -> pb.ListTasksResponse:
        tasks = [pb.TaskView(agent_id=each) for each in ("A1", "A2") if each == request.agent]
        return pb.ListTasksResponse(tasks=tasks)


def master() -> Master:
    return cast("Master", Lists())


async def test_a_teardown_of_queued_tasks_names_no_agents() -> None:
    lists = Lists()
    queued = pb.ListTasksResponse(tasks=[pb.TaskView(framework_id="F1")])
    lists.service.ListTasks = lambda _: asyncio.sleep(0, queued)
    preview = await teardown_preview(cast("Master", lists), "train")
    assert preview.lines[-1] == "  1 task is killed; it holds nothing"


async def test_only_tasks_of_the_agent_are_asked_for() -> None:
    assert len((await agent_use(master(), "A1")).tasks) == 1


async def test_agents_of_one_hostname_are_named_with_their_states() -> None:
    with pytest.raises(Conflict, match=r"A2 \(unreachable\), A3 \(connected\)"):
        await find_agent(master(), "h2")


async def test_an_unknown_agent_is_looked_for_by_id_and_hostname() -> None:
    with pytest.raises(NotFound, match="no agent has the id or hostname 'h9'"):
        await find_agent(master(), "h9")


async def test_an_agent_that_cannot_be_shown_hides_no_other() -> None:
    assert (await find_agent(master(), "h1"))["agent_id"] == "A1"
    assert (await teardown_preview(master(), "train")).object_id == "F1"
