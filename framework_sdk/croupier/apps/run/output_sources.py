"""Sources of the output of tasks: addresses of agents, and links that the master signs.

Rules: an agent may listen elsewhere after a restart. All readers together ask the master for
addresses at most once a second. Links are requested once an agent has refused a request without
one, so a cluster without authentication is asked for none; one call is for 1,000 tasks, and all
readers wait for it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from croupier.cli.connection import connected, objects
from croupier.cli.flags import Target
from croupier.cli.printer import Stream
from croupier.model.errors import CroupierError
from croupier.v1 import operator_pb2 as pb

MOST_TASKS: Final = 1_000
# A link is not used in the last part of its time: the connection may wait.
MARGIN_S: Final = 15.0

# Ids of framework, task and agent.
TaskKey = tuple[str, str, str]
ASK_S: Final = 1.0


class Links:
    """Links to output, as long as they are valid.

    Attributes:
        are_used: whether an agent has required one.
    """

    def __init__(self, target: Target) -> None:
        self.are_used = False
        self._target = target
        # The links of each task, None if the master gives none, and until when they are valid.
        self._known: dict[TaskKey, tuple[pb.OutputLinks | None, float]] = {}
        self._wanted: dict[TaskKey, None] = {}
        self._asking = asyncio.Lock()

    async def of(self, key: TaskKey, stream: Stream) -> str | None:
        """Return the path and query of a link; None if the master gives none.

        Raises:
            CroupierError: if the master cannot be reached, or refuses.
        """
        self._wanted[key] = None
        async with self._asking:
            if asyncio.get_running_loop().time() >= self._known.get(key, (None, 0.0))[1]:
                await self._ask(key)
            links, _ = self._known[key]
            self._wanted.pop(key, None)
        if links is None:
            return None
        return links.stdout if stream == "stdout" else links.stderr

    def forget(self, key: TaskKey) -> None:
        """Drop a link that an agent has refused, or that led to nothing."""
        self._known.pop(key, None)

    async def _ask(self, first: TaskKey) -> None:
        """Ask for the links of `first` and of other tasks whose readers wait."""
        keys = [first, *(key for key in self._wanted if key != first)][:MOST_TASKS]
        request = pb.GetOutputLinksRequest()
        for framework_id, task_id, agent_id in keys:
            request.tasks.add(framework_id=framework_id, task_id=task_id, agent_id=agent_id)
        async with connected(self._target) as master:
            answer = await master.ask(master.service.GetOutputLinks, request)
        now = asyncio.get_running_loop().time()
        found = {(each.framework_id, each.task_id): each for each in answer.links}
        for key in keys:
            links = found.get(key[:2])
            valid_s = 0.0 if links is None else links.valid_for_ms / 1000 - MARGIN_S
            self._known[key] = links, now + max(valid_s, 0.0)
            self._wanted.pop(key, None)


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
                async for each in objects(master, "agents")
            }
        self._gone = set(self._known) - set(listed)
        for agent_id in set(self._known) & set(listed):
            self._known[agent_id] = listed[agent_id]
