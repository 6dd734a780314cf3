"""Consequences of draining an agent, declaring it gone, and tearing a framework down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from croupier.api.affected import affected_agents, is_live
from croupier.cli.amounts import View, many, named
from croupier.cli.connection import Master
from croupier.cli.paging import messages
from croupier.ctl.lists import (
    FRAMEWORKS,
    TASKS,
    all_of,
    find_agent,
    find_framework,
)
from croupier.ctl.operation import Preview
from croupier.ctl.views import agent as agents
from croupier.ctl.views import framework as frameworks


@dataclass(frozen=True, slots=True)
class AgentUse:
    """An agent, its live tasks, and all frameworks."""

    agent: View
    tasks: Sequence[View]
    frameworks: Sequence[View]

    def preview(self, lines: Iterator[str]) -> Preview:
        """Return the consequences of an operation on the agent, with `lines` for people."""
        view = {
            "agent": self.agent,
            "tasks": _short(self.tasks, "task_id", "framework_id", "state"),
        }
        return Preview(self.agent["agent_id"], view, list(lines))


async def agent_use(master: Master, named: str) -> AgentUse:
    """Return the use of the agent of this id or hostname.

    Raises:
        NotFound: if there is none.
        Conflict: if several have that hostname.
    """
    agent = await find_agent(master, named)
    tasks = await all_of(master, TASKS, agent=agent["agent_id"])
    live = [each for each in tasks if is_live(each)]
    return AgentUse(agent, live, await all_of(master, FRAMEWORKS))


async def drain_preview(master: Master, named: str, grace_ms: int | None) -> Preview:
    """Return the consequences of draining an agent; raises as `agent_use`."""
    use = await agent_use(master, named)

    def lines() -> Iterator[str]:
        grace = "its own grace" if grace_ms is None else f"at most {grace_ms / 1000:g} s"
        number = many(len(use.tasks), "task")
        yield f"nothing was changed; {agents.name_of(use.agent)} would get no offers, and {number}"
        yield f"would be killed, each with {grace}:" if use.tasks else "would be killed"
        yield from agents.task_count_lines(use.tasks, use.frameworks)

    return use.preview(lines())


async def gone_preview(master: Master, named: str) -> Preview:
    """Return the consequences of declaring an agent gone; raises as `agent_use`."""
    use = await agent_use(master, named)

    def lines() -> Iterator[str]:
        name = agents.name_of(use.agent)
        yield f"{name} is {agents.state_text(use.agent)}; if it is declared gone, permanently:"
        yield "  it never returns under this id; if it still runs, it ends its tasks"
        if not use.tasks:
            yield "  it has no live tasks that the master knows"
            return
        are = "is" if len(use.tasks) == 1 else "are"
        yield f"  {many(len(use.tasks), 'task')} {are} lost, and may be started elsewhere:"
        for line in agents.task_count_lines(use.tasks, use.frameworks):
            yield f"  {line}"

    return use.preview(lines())


async def teardown_preview(master: Master, named: str) -> Preview:
    """Return the consequences of tearing a framework down.

    Raises:
        NotFound: if there is no such framework.
        Conflict: if several have that name.
    """
    framework = await find_framework(master, named)
    framework_id = framework["framework_id"]
    tasks = await all_of(master, TASKS, framework_id=framework_id)
    tasks = [task for task in tasks if is_live(task)]
    hosts = {
        each.agent.agent_id: each.agent.hostname
        async for page in messages(master, "agents")
        for each in page
    }
    view = {"framework": framework, "tasks": _short(tasks, "task_id", "agent_id", "state")}
    return Preview(framework_id, view, list(_teardown_lines(framework, tasks, hosts)))


def _teardown_lines(
    framework: View, tasks: Sequence[View], hosts: Mapping[str, str]
) -> Iterator[str]:
    name = named(framework["name"], framework["framework_id"])
    yield f"framework {name} is {frameworks.state_text(framework)}; if it is torn down:"
    yield "  no program can subscribe under its id ever again"
    if not tasks:
        yield "  it has no live tasks"
        return
    holds = framework["used"]["text"] or "nothing"
    are = "is" if len(tasks) == 1 else "are"
    placed = ":" if any(task["agent_id"] for task in tasks) else ""
    yield f"  {many(len(tasks), 'task')} {are} killed; it holds {holds}{placed}"
    for each in affected_agents(tasks, hosts):
        agent = named(each["hostname"], each["agent_id"])
        yield f"    {many(each['tasks'], 'task')} on agent {agent}"


def _short(tasks: Sequence[View], *keys: str) -> list[View]:
    return [{key: task[key] for key in keys} for task in tasks]
