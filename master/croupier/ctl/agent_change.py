"""The commands that deactivate and reactivate agents, declare them gone, and show one.

Rule: what cannot be undone is not done unless its consequences were shown and confirmed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from croupier.ctl import views
from croupier.ctl.agent_text import agent_lines, many, named, state_words, task_lines
from croupier.ctl.confirmation import confirmed
from croupier.ctl.connection import Master, connected
from croupier.ctl.pages import all_agents, all_frameworks, pages
from croupier.ctl.target import Target
from croupier.ctl.terminal import print_lines
from croupier.ctl.views import View
from croupier.model.errors import Conflict, NotFound
from croupier.model.task import TERMINAL
from croupier.v1 import operator_pb2 as pb

_ENDED = {state.name for state in TERMINAL}


@dataclass(frozen=True, slots=True)
class Stake:
    """An agent, the tasks on it that have not ended, and all frameworks."""

    agent: View
    tasks: Sequence[View]
    frameworks: Sequence[View]


def deactivate_agent(target: Target, agent: str, *, as_json: bool) -> None:
    """Have the agent offered no more, and print how it stands.

    Raises:
        NotFound: if there is no such agent.
        Refused: if several have that hostname.
    """

    async def asked() -> pb.AgentView:
        async with connected(target) as master:
            request = pb.DeactivateAgentRequest(agent=agent)
            return (await master.ask(master.service.DeactivateAgent, request)).agent

    _print(views.agent_view(asyncio.run(asked())), as_json)


def reactivate_agent(target: Target, agent: str, *, as_json: bool) -> None:
    """Have the agent offered again, and print how it stands.

    Raises:
        NotFound: if there is no such agent.
        Refused: if several have that hostname.
        Conflict: if it was declared gone.
    """

    async def asked() -> pb.AgentView:
        async with connected(target) as master:
            request = pb.ReactivateAgentRequest(agent=agent)
            return (await master.ask(master.service.ReactivateAgent, request)).agent

    _print(views.agent_view(asyncio.run(asked())), as_json)


def mark_agent_gone(
    target: Target, agent: str, *, is_sure: bool, dry_run: bool, as_json: bool
) -> None:
    """Declare the agent gone, after its consequences were shown and confirmed.

    Raises:
        Conflict: if it was not confirmed, or several have that hostname.
        NotFound: if there is no such agent.
        InvalidRequest: if the user cannot be asked.
    """
    if dry_run or not is_sure:
        stake = asyncio.run(_stake(target, agent))
        if dry_run and as_json:
            print(json.dumps({"dry_run": True, **told(stake)}, indent=2))
            return
        print_lines(*_gone_lines(stake))
        if dry_run:
            return
        if not confirmed():
            raise Conflict("nothing was changed")
        # What was confirmed is of this agent, whoever has its hostname by now.
        agent = stake.agent["agent_id"]

    async def asked() -> pb.AgentView:
        async with connected(target) as master:
            request = pb.MarkAgentGoneRequest(agent=agent)
            return (await master.ask(master.service.MarkAgentGone, request)).agent

    view = views.agent_view(asyncio.run(asked()))
    if as_json:
        print(json.dumps(view, indent=2))
    else:
        print_lines(f"{named(view)} is gone")


def show_agent(target: Target, agent: str, *, as_json: bool) -> None:
    """Print all that is known of one agent.

    Raises:
        NotFound: if there is no such agent.
        Conflict: if several have that hostname.
    """
    stake = asyncio.run(_stake(target, agent))
    if as_json:
        print(json.dumps(stake.agent, indent=2))
        return
    print_lines(*agent_lines(stake.agent, stake.tasks, stake.frameworks))


async def stake_of(master: Master, agent: str) -> Stake:
    """What depends on the agent of this id or hostname.

    Raises:
        NotFound: if there is no such agent.
        Conflict: if several have that hostname.
    """
    agents = [views.agent_view(each) for each in await all_agents(master)]
    found = find_agent(agents, agent)
    here = [
        views.task_view(task)
        async for page in pages(master, master.service.ListTasks, pb.ListTasksRequest())
        for task in page.tasks
        if task.agent_id == found["agent_id"]
    ]
    return Stake(
        found,
        [task for task in here if task["state"] not in _ENDED],
        [views.framework_view(each) for each in await all_frameworks(master)],
    )


def find_agent(agents: Sequence[View], name: str) -> View:
    """The agent of this id or, if there is just one, of this hostname.

    Raises:
        NotFound: if there is no such agent.
        Conflict: if several have that hostname.
    """
    for agent in agents:
        if agent["agent_id"] == name:
            return agent
    alike = [agent for agent in agents if agent["hostname"] == name]
    if not alike:
        raise NotFound(f"no agent has the id or hostname {name!r}")
    if len(alike) > 1:
        ids = ", ".join(f"{each['agent_id']} ({each['state']})" for each in alike)
        raise Conflict(f"several agents have this hostname: {ids}")
    return alike[0]


def told(stake: Stake) -> View:
    """What depends on the agent, for programs."""
    names = ("task_id", "framework_id", "state")
    tasks = [{name: task[name] for name in names} for task in stake.tasks]
    return {"agent": stake.agent, "tasks": tasks}


async def _stake(target: Target, agent: str) -> Stake:
    async with connected(target) as master:
        return await stake_of(master, agent)


def _gone_lines(stake: Stake) -> Iterator[str]:
    """What comes of declaring the agent gone."""
    yield f"{named(stake.agent)} is {state_words(stake.agent)}; if it is declared gone, for good:"
    yield "  it never returns under this id, and if it runs all the same it ends its tasks"
    if not stake.tasks:
        yield "  no task of it is known that has not ended"
        return
    number = len(stake.tasks)
    are = "is" if number == 1 else "are"
    yield f"  {many(number, 'task')} {are} taken for dead, and may be started elsewhere:"
    for line in task_lines(stake.tasks, stake.frameworks):
        yield f"  {line}"


def _print(agent: View, as_json: bool) -> None:
    if as_json:
        print(json.dumps(agent, indent=2))
    else:
        print_lines(f"{named(agent)} is {state_words(agent)}")
