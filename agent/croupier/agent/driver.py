"""The driver: the one task that owns the agent's state.

In each turn it decides the events that have arrived, commits their records together off the loop,
and performs the effects. All updates of a turn leave in one message.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from croupier.agent import health_check
from croupier.agent.checkpoint import Checkpoint
from croupier.agent.core.events import AgentStarted, DiskFull, Event, HealthChecked
from croupier.agent.metrics import Metrics
from croupier.agent.reactor import Batch, Reactor
from croupier.model.clock import Clock
from croupier.process.inbox import Inbox

# The most events of one turn.
BATCH = 1000


@dataclass(frozen=True, slots=True)
class Driver:
    """Runs the reactor in real time; at a stop, `all_ended` is set once no task has a process."""

    reactor: Reactor
    inbox: Inbox[Event]
    checkpoint: Checkpoint
    metrics: Metrics
    clock: Clock
    all_ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Run the reactor until cancelled; raises Unavailable if records cannot be made durable."""
        reactor, clock = self.reactor, self.clock
        reactor.decide(AgentStarted())
        while True:
            began = clock.now()
            for event in self.inbox.take(BATCH):
                reactor.decide(event)
            batch = reactor.end_batch(is_full=self.checkpoint.is_urgent)
            decided = clock.now()
            await self._commit(batch)
            committed = clock.now()
            reactor.send(batch)
            if batch.effects:
                # The session's writer sends the messages first.
                await asyncio.sleep(0)
            reactor.perform(batch)
            if reactor.has_ended:
                self.all_ended.set()
            self.metrics.turned(decided - began + clock.now() - committed)
            wake_at = reactor.wake_at()
            await self.inbox.wait(None if wake_at is None else wake_at - clock.now())

    async def _commit(self, batch: Batch) -> None:
        if not batch.is_urgent:
            self.checkpoint.defer(batch.records)
            return
        began = self.clock.now()
        alarm = asyncio.get_running_loop().call_later(health_check.ANSWER_S, self._report_stall)
        try:
            size = await self.checkpoint.commit(batch.records)
        finally:
            alarm.cancel()
        if size:
            self.metrics.committed(self.clock.now() - began, size)
        if not self.checkpoint.has_room:
            # Decided before the launches that wait in the inbox.
            self.reactor.decide(DiskFull())

    def _report_stall(self) -> None:
        """Become unhealthy while the disk hangs: the health check waits for it as well."""
        problem = health_check.does_not_answer(self.checkpoint.path.parent)
        self.reactor.decide_at_once(HealthChecked((problem,)))
