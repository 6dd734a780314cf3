"""The commands that list: ask for every page, print each as a table or JSON as it comes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence

from croupier.ctl import tables, views
from croupier.ctl.connection import Master, connected
from croupier.ctl.json_list import JsonList
from croupier.ctl.lookup import framework_called
from croupier.ctl.pages import pages
from croupier.ctl.tables import Table, print_table
from croupier.ctl.target import Target
from croupier.ctl.views import View
from croupier.v1 import operator_pb2 as pb

Fetch = Callable[[Master], AsyncIterator[Sequence[View]]]


def list_agents(target: Target, *, as_json: bool) -> None:
    """Print all agents."""

    async def fetch(master: Master) -> AsyncIterator[Sequence[View]]:
        async for page in pages(master, master.service.ListAgents, pb.ListAgentsRequest()):
            yield [views.agent_view(agent) for agent in page.agents]

    print_pages(target, fetch, tables.AGENTS, as_json=as_json)


def list_frameworks(target: Target, *, as_json: bool) -> None:
    """Print all frameworks."""

    async def fetch(master: Master) -> AsyncIterator[Sequence[View]]:
        async for page in pages(master, master.service.ListFrameworks, pb.ListFrameworksRequest()):
            yield [views.framework_view(framework) for framework in page.frameworks]

    print_pages(target, fetch, tables.FRAMEWORKS, as_json=as_json)


def list_offers(target: Target, *, as_json: bool) -> None:
    """Print all outstanding offers."""

    async def fetch(master: Master) -> AsyncIterator[Sequence[View]]:
        async for page in pages(master, master.service.ListOffers, pb.ListOffersRequest()):
            yield [views.offer_view(offer) for offer in page.offers]

    print_pages(target, fetch, tables.OFFERS, as_json=as_json)


def list_tasks(target: Target, *, framework_id: str, with_commands: bool, as_json: bool) -> None:
    """Print the tasks of one framework, or of all if `framework_id` is empty.

    Raises:
        NotFound: if there is no such framework, nor a task of it that is remembered.
        Conflict: if it is a name that several frameworks have.
    """

    async def fetch(master: Master) -> AsyncIterator[Sequence[View]]:
        is_empty = True
        async for page in _tasks_of(master, framework_id, with_commands):
            is_empty = is_empty and not page
            yield page
        if is_empty and framework_id:
            known = (await framework_called(master, framework_id))["framework_id"]
            if known != framework_id:
                async for page in _tasks_of(master, known, with_commands):
                    yield page

    table = tables.TASKS_WITH_COMMANDS if with_commands else tables.TASKS
    print_pages(target, fetch, table, as_json=as_json)


async def _tasks_of(
    master: Master, framework_id: str, with_commands: bool
) -> AsyncIterator[Sequence[View]]:
    request = pb.ListTasksRequest(framework_id=framework_id, with_commands=with_commands)
    async for page in pages(master, master.service.ListTasks, request):
        yield [views.task_view(task) for task in page.tasks]


def print_pages(target: Target, fetch: Fetch, table: Table, *, as_json: bool) -> None:
    """Print what `fetch` yields. No more than a page is held at a time."""

    async def printed() -> None:
        async with connected(target) as master:
            if as_json:
                await _print_json(fetch(master))
            else:
                await _print_table(fetch(master), table)

    asyncio.run(printed())


async def _print_json(found: AsyncIterator[Sequence[View]]) -> None:
    printed = JsonList(sys.stdout)
    async for page in found:
        printed.add(page)
    printed.close()


async def _print_table(found: AsyncIterator[Sequence[View]], table: Table) -> None:
    is_empty = True
    async for page in found:
        if page:
            print_table(table, page, sys.stdout, with_titles=is_empty)
            is_empty = False
    if is_empty:
        print(table.empty)
