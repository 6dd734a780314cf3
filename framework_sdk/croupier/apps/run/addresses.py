"""Addresses of the agents that serve output: from their offers, and later from the master.

Rule: an agent may listen elsewhere after a restart. All readers together ask the master at most
once a second.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from croupier.cli.connection import connected, messages
from croupier.cli.flags import Target
from croupier.model.errors import CroupierError

ASK_S: Final = 1.0


class Addresses:
    """HOST:PORT of the HTTP server of each agent, by agent id."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: dict[str, str] = {}
        self._gone: set[str] = set()
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")

    def learn(self, agent_id: str, address: str) -> None:
        """Record the address in an offer of the agent."""
        self._known[agent_id] = address

    def of(self, agent_id: str) -> str:
        """Return the latest known address; empty if the agent has none."""
        return self._known.get(agent_id, "")

    def is_gone(self, agent_id: str) -> bool:
        """Return whether the master did not know the agent at the last query."""
        return agent_id in self._gone

    async def refresh(self) -> None:
        """Ask the master for all addresses; keep the known ones if it cannot be reached."""
        loop = asyncio.get_running_loop()
        async with self._asking:
            if loop.time() - self._asked_at < ASK_S:
                return
            with suppress(CroupierError):
                await self._ask()
            self._asked_at = loop.time()

    async def _ask(self) -> None:
        async with connected(self._target) as master:
            listed = {
                each.agent.agent_id: each.agent.http_address
                async for page in messages(master, "agents")
                for each in page
            }
        self._gone = set(self._known) - set(listed)
        for agent_id in set(self._known) & set(listed):
            self._known[agent_id] = listed[agent_id]
