"""A framework for tests of metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from croupier.net.address import Address
from croupier.sdk import Framework, Offer, Resources, TaskStatus

UNIT = Resources.parse("cpus:1;mem:16MB;disk:16MB")


class Workload(Framework):
    """Submits tasks and records their states."""

    def __init__(self, master: Address, role: str, demand: Resources | None = None) -> None:
        super().__init__(name=role, role=role, master=str(master), demand=demand)
        self.states: dict[str, str] = {}
        self.subscribed, self.declined = asyncio.Event(), asyncio.Event()

    async def on_subscribed(self, framework_id: str) -> None:
        self.subscribed.set()

    async def on_offers(self, offers: list[Offer]) -> None:
        await self.decline(offers)
        self.declined.set()

    async def on_update(self, status: TaskStatus) -> None:
        self.states[status.task_id] = status.state.name


W = TypeVar("W", bound=Workload)


@asynccontextmanager
async def running(framework: W) -> AsyncIterator[W]:
    """Run a framework until the block is left."""
    task = asyncio.create_task(framework.run())
    try:
        await asyncio.wait_for(framework.subscribed.wait(), 10)
        yield framework
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
