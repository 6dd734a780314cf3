"""A REGISTER that comes in pages: nothing of it is decided before all has come.

An agent with many tasks sends pages of them first, and then REGISTER, which says how many pages
there were. The core is given one event. What waits here is bounded for each agent, for all
together, and in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from croupier.master.core.events import AgentTask, Register
from croupier.master.wire.from_agent import MAX_AGENT_TASKS, tasks_from_wire
from croupier.model.errors import CroupierError, InvalidRequest, ProtocolViolation, TooSlow
from croupier.net.outbox import Budget
from croupier.v1 import agent_pb2 as pb
from croupier.wire.limits import check_count

# Of all pages of one agent, on the wire.
MAX_BYTES = 32 * 1024 * 1024
# From the first page to REGISTER.
COMPLETE_S = 60.0


class Registration:
    """The pages of one session."""

    def __init__(self, budget: Budget, end: Callable[[CroupierError], None]) -> None:
        """Count what waits toward `budget`; `end` ends the session if the rest does not come."""
        self._budget, self._end = budget, end
        self._tasks: list[AgentTask] = []
        self._pages = self._bytes = 0
        self._deadline: asyncio.TimerHandle | None = None

    async def add(self, page: pb.RegisterPage) -> None:
        """Take in a page.

        Raises:
            InvalidRequest: if a task is malformed, or they are too many or too large.
            TooSlow: if too many other agents are at it.
        """
        check_count(len(self._tasks) + len(page.tasks), MAX_AGENT_TASKS, "tasks of one agent")
        size = page.ByteSize()
        if self._bytes + size > MAX_BYTES:
            raise InvalidRequest(f"the agent's tasks take more than {MAX_BYTES} bytes")
        if self._deadline is None:
            late = TooSlow(f"REGISTER did not come within {COMPLETE_S:g} s of its first page")
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(COMPLETE_S, self._end, late)
        self._bytes += size
        self._budget.add(size)
        if self._budget.is_over:
            raise TooSlow("too many agents register with very many tasks; try again later")
        self._pages += 1
        self._tasks += await tasks_from_wire(page.tasks)

    def complete(self, event: Register, pages: int) -> Register:
        """REGISTER with the tasks of the `pages` that came before it.

        Raises:
            ProtocolViolation: if it was another number of pages.
            InvalidRequest: if the tasks are too many.
        """
        if pages != self._pages:
            raise ProtocolViolation(f"{self._pages} pages came before REGISTER, not {pages}")
        check_count(len(self._tasks) + len(event.tasks), MAX_AGENT_TASKS, "tasks of one agent")
        tasks = (*self._tasks, *event.tasks)
        self.close()
        return replace(event, tasks=tasks)

    def close(self) -> None:
        """Let go of what waits."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._budget.add(-self._bytes)
        self._tasks = []
        self._pages = self._bytes = 0
