"""A REGISTER in pages.

An agent with many tasks sends pages of tasks, and then REGISTER with the number of pages. The
core gets one event. Pages are bounded for each agent, for all agents together, and in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from croupier.master.access.launch_proofs import LaunchProofs
from croupier.master.core.events import AgentTask, Register
from croupier.master.wire.from_agent import MAX_AGENT_TASKS, tasks_from_wire
from croupier.model.errors import CroupierError, InvalidRequest, ProtocolViolation, TooSlow
from croupier.net.outbox import Budget
from croupier.v1 import agent_pb2 as pb
from croupier.wire.resources import check_count

# Limit of all pages of one agent, encoded.
MAX_BYTES = 32 * 1024 * 1024
# Limit of the time from the first page to REGISTER.
COMPLETE_S = 60.0


class Registration:
    """The pages of one session."""

    def __init__(
        self,
        budget: Budget,
        end: Callable[[CroupierError], None],
        proofs: LaunchProofs | None = None,
    ) -> None:
        """Count pages toward `budget`; `end` ends the session if REGISTER does not come in time.

        `proofs` judges the tasks.
        """
        self._budget, self._end, self._proofs = budget, end, proofs
        self._tasks: list[AgentTask] = []
        self._pages = self._bytes = 0
        self._deadline: asyncio.TimerHandle | None = None

    async def add(self, page: pb.RegisterPage) -> None:
        """Add a page.

        Raises:
            InvalidRequest: if a task is malformed, or the tasks are too many or too large.
            TooSlow: if other agents hold too many pages.
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
        self._budget.used += size
        if self._budget.is_over:
            raise TooSlow("too many agents register with very many tasks; try again later")
        self._pages += 1
        self._tasks += await tasks_from_wire(page.tasks, self._proofs)

    def complete(self, event: Register, pages: int) -> Register:
        """Return REGISTER with the tasks of all pages.

        Raises:
            ProtocolViolation: if the number of pages is not `pages`.
            InvalidRequest: if the tasks are too many.
        """
        if pages != self._pages:
            raise ProtocolViolation(f"{self._pages} pages came before REGISTER, not {pages}")
        check_count(len(self._tasks) + len(event.tasks), MAX_AGENT_TASKS, "tasks of one agent")
        tasks = (*self._tasks, *event.tasks)
        self.close()
        return replace(event, tasks=tasks)

    def close(self) -> None:
        """Drop all pages."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._budget.used -= self._bytes
        self._tasks = []
        self._pages = self._bytes = 0
