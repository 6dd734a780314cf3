"""Links to the output of tasks, which the master signs for agents that require them.

Rule: links are requested once an agent has refused a request without one, so a cluster without
authentication is asked for none. All readers together wait for one call, which is for 1,000 tasks.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from croupier.cli.connection import connected
from croupier.cli.flags import Target
from croupier.cli.printer import Stream
from croupier.v1 import operator_pb2 as pb

MOST_TASKS: Final = 1_000
# A link is not used in the last part of its time: the connection may wait.
MARGIN_S: Final = 15.0

# Ids of framework, task and agent.
TaskKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Known:
    """The links of one task; None if the master gives none."""

    links: pb.OutputLinks | None
    until: float


class Links:
    """Links to output, as long as they are valid.

    Attributes:
        are_used: whether an agent has required one.
    """

    def __init__(self, target: Target) -> None:
        self.are_used = False
        self._target = target
        self._known: dict[TaskKey, _Known] = {}
        self._wanted: dict[TaskKey, None] = {}
        self._asking = asyncio.Lock()

    async def of(self, key: TaskKey, stream: Stream) -> str | None:
        """Return the path and query of a link; None if the master gives none.

        Raises:
            CroupierError: if the master cannot be reached, or refuses.
        """
        self._wanted[key] = None
        async with self._asking:
            known = self._known.get(key)
            if known is None or asyncio.get_running_loop().time() >= known.until:
                await self._ask(key)
                known = self._known[key]
            self._wanted.pop(key, None)
        if known.links is None:
            return None
        return known.links.stdout if stream == "stdout" else known.links.stderr

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
            self._known[key] = _Known(links, now + max(valid_s, 0.0))
            self._wanted.pop(key, None)
