"""Sources of the output of tasks: addresses of agents, and links that the master signs.

Rules: an agent may listen elsewhere after a restart, and may require links. The master tells both
by one call for up to 1,000 tasks, for which all readers wait. It is asked for an address at most
once a second, and for links once an agent has refused a request without one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, NamedTuple
from urllib.parse import quote

from croupier.cli.connection import connected
from croupier.cli.flags import Target
from croupier.cli.printer import Stream
from croupier.model.errors import CroupierError, NotFound
from croupier.model.ids import FrameworkId, TaskId
from croupier.net.output_links import output_path
from croupier.v1 import operator_pb2 as pb

MOST_TASKS: Final = 1_000
# A link is not used in the last part of its time: the connection may wait.
MARGIN_S: Final = 15.0
ASK_S: Final = 1.0


class TaskKey(NamedTuple):
    """A task by all of its ids."""

    framework_id: str
    task_id: str
    agent_id: str


class OutputSources:
    """HOST:PORT of agents, and valid links to output; `needs_links`: an agent has required one."""

    def __init__(self, target: Target) -> None:
        self.needs_links = False
        self._target = target
        self._addresses: dict[str, str] = {}
        # The links of each task, None if the master gives none, and until when they are valid.
        self._links: dict[TaskKey, tuple[pb.OutputLinks | None, float]] = {}
        self._wanted: dict[TaskKey, None] = {}
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")

    def learn(self, agent_id: str, address: str) -> None:
        """Record the address in the description of an agent."""
        self._addresses[agent_id] = address

    def address_of(self, agent_id: str) -> str:
        """Return the latest known address; empty if the agent has none."""
        return self._addresses.get(agent_id, "")

    async def link_to(self, key: TaskKey, stream: Stream) -> str:
        """Return the path of a stream; with its signature, if agents require that.

        Raises:
            NotFound: if the master gives no link.
            CroupierError: if the master cannot be reached, or refuses.
        """
        if not self.needs_links:
            framework_id, task_id, _ = key
            return quote(output_path(FrameworkId(framework_id), TaskId(task_id), stream))
        self._wanted[key] = None
        async with self._asking:
            if asyncio.get_running_loop().time() >= self._links.get(key, (None, 0.0))[1]:
                await self._ask(key)
            links, _ = self._links[key]
            self._wanted.pop(key, None)
        if links is None:
            raise NotFound(
                "the master gives no link: the task is unknown, or its output not for you"
            )
        return links.stdout if stream == "stdout" else links.stderr

    def refuse(self, key: TaskKey) -> None:
        """Record that an agent has required a link, or refused the one that it was given."""
        self.needs_links = True
        self._links.pop(key, None)

    async def refresh(self, key: TaskKey) -> None:
        """Ask for the address of a task's agent; keep the known one if no master is reached."""
        self._wanted[key] = None
        async with self._asking:
            if asyncio.get_running_loop().time() - self._asked_at >= ASK_S:
                with suppress(CroupierError):
                    await self._ask(key)

    async def _ask(self, first: TaskKey) -> None:
        """Ask about `first` and other tasks whose readers wait."""
        loop = asyncio.get_running_loop()
        keys = [first, *(key for key in self._wanted if key != first)][:MOST_TASKS]
        request = pb.GetOutputLinksRequest()
        for framework_id, task_id, agent_id in keys:
            request.tasks.add(framework_id=framework_id, task_id=task_id, agent_id=agent_id)
        try:
            async with connected(self._target) as master:
                answer = await master.ask(master.service.GetOutputLinks, request)
        finally:
            self._asked_at = loop.time()
        found = {(each.framework_id, each.task_id): each for each in answer.links}
        for key in keys:
            links = found.get(key[:2])
            valid_s = 0.0 if links is None else links.valid_for_ms / 1000 - MARGIN_S
            self._links[key] = links, loop.time() + max(valid_s, 0.0)
            self._wanted.pop(key, None)
            # It is empty while the agent is not registered.
            if links is not None and links.http_address:
                self._addresses[key.agent_id] = links.http_address
