"""Addresses of agents, as `croupier run` asks the master for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from croupier.apps.run import output_sources
from croupier.apps.run.output_sources import Addresses
from croupier.cli.connection import Master
from croupier.cli.flags import LOCAL, Target
from croupier.v1 import operator_pb2 as pb
from croupier.v1.framework_pb2 import AgentDescription
from croupier.v1.resources_pb2 import Attribute


class Agents:
    """A master of a newer release: one agent has an attribute of an unknown kind."""

    address = "a:1"

    def __init__(self) -> None:
        self.service = SimpleNamespace(ListAgents=self._list)

    async def ask(
        self, question: Callable[[Any], Coroutine[Any, Any, Any]], request: object
    ) -> object:
        return await question(request)

    async def _list(self, _: pb.ListAgentsRequest) -> pb.ListAgentsResponse:
        newer = AgentDescription(agent_id="A2", attributes=[Attribute(name="zone")])
        moved = AgentDescription(agent_id="A1", http_address="h1:2")
        return pb.ListAgentsResponse(agents=[pb.AgentView(agent=each) for each in (newer, moved)])


async def test_one_agent_that_cannot_be_shown_hides_no_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @asynccontextmanager
    async def connected(_: Target) -> AsyncIterator[Master]:
        yield cast("Master", Agents())

    monkeypatch.setattr(output_sources, "connected", connected)
    known = Addresses(LOCAL)
    known.learn("A1", "h1:1")
    await known.refresh()
    assert known.of("A1") == "h1:2"
