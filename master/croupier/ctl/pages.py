"""Lists of the master's that come in pages: all of them, one after another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

import grpc.aio

from croupier.ctl.connection import Master
from croupier.model.errors import Unavailable
from croupier.v1 import operator_pb2 as pb

RequestT = TypeVar(
    "RequestT",
    pb.ListAgentsRequest,
    pb.ListFrameworksRequest,
    pb.ListRolesRequest,
    pb.ListOffersRequest,
    pb.ListTasksRequest,
)
PageT = TypeVar(
    "PageT",
    pb.ListAgentsResponse,
    pb.ListFrameworksResponse,
    pb.ListRolesResponse,
    pb.ListOffersResponse,
    pb.ListTasksResponse,
)


async def pages(
    master: Master,
    question: grpc.aio.UnaryUnaryMultiCallable[RequestT, PageT],
    request: RequestT,
) -> AsyncIterator[PageT]:
    """Every page of a list, from the first; `request` is changed on the way.

    Raises:
        Unavailable: if the master cannot be reached, or its pages have no end.
        CroupierError: if it refuses.
    """
    while True:
        page = await master.ask(question, request)
        yield page
        if not page.next_page_token:
            return
        if page.next_page_token == request.page_token:
            raise Unavailable(f"the master at {master.address} gives one page again and again")
        request.page_token = page.next_page_token


async def all_agents(master: Master) -> list[pb.AgentView]:
    """All agents.

    Raises:
        CroupierError: as for `pages`.
    """
    found = pages(master, master.service.ListAgents, pb.ListAgentsRequest())
    return [agent async for page in found for agent in page.agents]


async def all_frameworks(master: Master) -> list[pb.FrameworkView]:
    """All frameworks.

    Raises:
        CroupierError: as for `pages`.
    """
    found = pages(master, master.service.ListFrameworks, pb.ListFrameworksRequest())
    return [framework async for page in found for framework in page.frameworks]
