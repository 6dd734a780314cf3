"""The command that tears a framework down.

Rule: what cannot be undone is not done before its consequences were shown and confirmed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from croupier.ctl import views
from croupier.ctl.agent_text import many
from croupier.ctl.confirmation import confirmed
from croupier.ctl.connection import Master, connected
from croupier.ctl.framework_text import teardown_lines
from croupier.ctl.lookup import framework_called
from croupier.ctl.pages import all_agents, pages
from croupier.ctl.target import Target
from croupier.ctl.terminal import print_lines
from croupier.ctl.views import View
from croupier.model.errors import Conflict, NotFound
from croupier.model.task import TERMINAL
from croupier.v1 import operator_pb2 as pb

_ENDED = {state.name for state in TERMINAL}


@dataclass(frozen=True, slots=True)
class Stake:
    """A framework, its tasks that have not ended, and the hostnames of agents by id."""

    framework: View
    tasks: Sequence[View]
    hostnames: Mapping[str, str]


def tear_framework_down(
    target: Target, named: str, *, is_sure: bool, dry_run: bool, as_json: bool
) -> None:
    """Tear the framework down, after its consequences were shown and confirmed.

    Raises:
        Conflict: if it was not confirmed, or several have that name.
        NotFound: if there is no such framework.
        InvalidRequest: if the user cannot be asked.
    """
    if dry_run or not is_sure:
        stake = asyncio.run(_stake(target, named))
        if dry_run and as_json:
            print(json.dumps({"dry_run": True, **_told(stake)}, indent=2))
            return
        print_lines(*teardown_lines(stake.framework, stake.tasks, stake.hostnames))
        if dry_run:
            return
        if not confirmed():
            raise Conflict("nothing was changed")
        # The user has confirmed this framework, not the one that has its name by now.
        named = stake.framework["framework_id"]
    framework_id, name, left = asyncio.run(_torn_down(target, named))
    if as_json:
        print(json.dumps({"framework_id": framework_id, "tasks_left": left}, indent=2))
        return
    called = f"framework {framework_id}" + (f" ({name})" if name else "")
    ending = f"; {many(left, 'task')} of it will end" if left else ""
    print_lines(f"{called} is torn down{ending}")


async def _torn_down(target: Target, named: str) -> tuple[str, str, int]:
    """Have it torn down; its id, its name, and how many tasks have yet to end."""
    async with connected(target) as master:
        framework_id, name = named, ""
        with suppress(NotFound):
            # One that is removed already is not listed; the master knows its id.
            framework = await framework_called(master, named)
            framework_id, name = framework["framework_id"], framework["name"]
        request = pb.TeardownFrameworkRequest(framework_id=framework_id)
        answer = await master.ask(master.service.TeardownFramework, request)
        return framework_id, name, answer.tasks


async def _stake(target: Target, named: str) -> Stake:
    async with connected(target) as master:
        framework = await framework_called(master, named)
        tasks = await _tasks_of(master, framework["framework_id"])
        agents = [each.agent for each in await all_agents(master)]
        hostnames = {agent.agent_id: agent.hostname for agent in agents}
        return Stake(framework, tasks, hostnames)


async def _tasks_of(master: Master, framework_id: str) -> list[View]:
    request = pb.ListTasksRequest(framework_id=framework_id)
    found = pages(master, master.service.ListTasks, request)
    tasks = [views.task_view(task) async for page in found for task in page.tasks]
    return [task for task in tasks if task["state"] not in _ENDED]


def _told(stake: Stake) -> View:
    names = ("task_id", "agent_id", "state")
    tasks = [{name: task[name] for name in names} for task in stake.tasks]
    return {"framework": stake.framework, "tasks": tasks}
