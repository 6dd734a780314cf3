"""A framework with endless demand for one shape, for tests of fairness."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from croupier.sdk import Framework, Offer, Resources, Task, TaskStatus


class Steady(Framework):
    """A framework that fills every offer with tasks of one shape that run for `seconds`."""

    def __init__(
        self, name: str, master: str, unit: str, seconds: float = 0.5, think_s: float = 0.0,
        role: str = "", declares: bool = True,
    ) -> None:  # fmt: skip
        self.unit = Resources.parse(unit)
        demand = self.unit if declares else None
        super().__init__(
            name=name, role=role or name, master=master, demand=demand, failover_timeout_s=5
        )
        self.seconds, self.think_s = seconds, think_s
        self.launched = 0
        self.subscribed = asyncio.Event()

    async def on_subscribed(self, framework_id: str) -> None:
        self.subscribed.set()

    async def on_offers(self, offers: list[Offer]) -> None:
        if self.think_s:
            await asyncio.sleep(self.think_s)
        for offer in offers:
            tasks, left = [], offer.resources
            while self.unit <= left:
                tasks.append(Task(["sleep", str(self.seconds)], resources=self.unit))
                left -= self.unit
            verdicts = await self.accept(offer, tasks)
            self.launched += sum(verdict.ok for verdict in verdicts)

    async def on_update(self, status: TaskStatus) -> None:
        pass


class Subscriber(Protocol):
    """A framework with an event for its subscription."""

    subscribed: asyncio.Event

    async def run(self) -> None:
        """Run until stopped."""

    async def stop(self, *, teardown: bool = False) -> None:
        """End the framework."""


AtWork = TypeVar("AtWork", bound=Subscriber)


@asynccontextmanager
async def at_work(framework: AtWork) -> AsyncIterator[AtWork]:
    """Run a framework, and tear it down at the end."""
    running = asyncio.create_task(framework.run())
    try:
        waiting = asyncio.create_task(framework.subscribed.wait())
        await asyncio.wait([waiting, running], timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert framework.subscribed.is_set()
        yield framework
    finally:
        await framework.stop(teardown=True)
        await asyncio.wait_for(running, 60)
