"""The commands that list: ask once, print a table or JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence

from croupier.ctl import tables, views
from croupier.ctl.connection import Master, connected
from croupier.ctl.lookup import framework_called
from croupier.ctl.tables import Table, print_table
from croupier.ctl.target import Target
from croupier.ctl.views import View
from croupier.v1 import operator_pb2 as pb

Fetch = Callable[[Master], Awaitable[Sequence[View]]]


def list_agents(target: Target, *, as_json: bool) -> None:
    """Print all agents."""

    async def fetch(master: Master) -> Sequence[View]:
        answer = await master.ask(master.service.ListAgents, pb.ListAgentsRequest())
        return [views.agent_view(agent) for agent in answer.agents]

    _print(target, fetch, tables.AGENTS, as_json)


def list_frameworks(target: Target, *, as_json: bool) -> None:
    """Print all frameworks."""

    async def fetch(master: Master) -> Sequence[View]:
        answer = await master.ask(master.service.ListFrameworks, pb.ListFrameworksRequest())
        return [views.framework_view(framework) for framework in answer.frameworks]

    _print(target, fetch, tables.FRAMEWORKS, as_json)


def list_offers(target: Target, *, as_json: bool) -> None:
    """Print all outstanding offers."""

    async def fetch(master: Master) -> Sequence[View]:
        answer = await master.ask(master.service.ListOffers, pb.ListOffersRequest())
        return [views.offer_view(offer) for offer in answer.offers]

    _print(target, fetch, tables.OFFERS, as_json)


def list_tasks(target: Target, *, framework_id: str, as_json: bool) -> None:
    """Print the tasks of one framework, or of all if `framework_id` is empty.

    Raises:
        NotFound: if there is no such framework, nor a task of it that is remembered.
        Conflict: if it is a name that several frameworks have.
    """

    async def fetch(master: Master) -> Sequence[View]:
        found = await _tasks_of(master, framework_id)
        if found or not framework_id:
            return found
        known = (await framework_called(master, framework_id))["framework_id"]
        return found if known == framework_id else await _tasks_of(master, known)

    _print(target, fetch, tables.TASKS, as_json)


async def _tasks_of(master: Master, framework_id: str) -> Sequence[View]:
    request = pb.ListTasksRequest(framework_id=framework_id)
    answer = await master.ask(master.service.ListTasks, request)
    return [views.task_view(task) for task in answer.tasks]


def _print(target: Target, fetch: Fetch, table: Table, as_json: bool) -> None:
    async def listed() -> Sequence[View]:
        async with connected(target) as master:
            return await fetch(master)

    found = asyncio.run(listed())
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print_table(table, found, sys.stdout)
