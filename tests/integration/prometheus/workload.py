"""A framework for tests of metrics, and waits for alerts; their names lack the prefix Croupier."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from croupier.net.address import Address
from croupier.sdk import Framework, Offer, Resources, TaskStatus
from tests.harness.eventually import eventually
from tests.harness.prometheus import Prometheus

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
        await asyncio.wait_for(framework.subscribed.wait(), 30)
        yield framework
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


DEADLINE_S = 150.0


async def fire(
    prometheus: Prometheus, cluster: str, *alerts: str, timeout_s: float = DEADLINE_S
) -> None:
    """Wait until all of `alerts` fire for the cluster; '' is the one without a label."""
    wanted = {f"Croupier{alert}" for alert in alerts}

    async def all_fire() -> bool:
        return wanted <= await prometheus.firing(cluster)

    await eventually(all_fire, timeout_s, f"{alerts} fire")


async def stop(
    prometheus: Prometheus, cluster: str, *alerts: str, timeout_s: float = DEADLINE_S
) -> None:
    """Wait until none of `alerts` fires for the cluster."""
    unwanted = {f"Croupier{alert}" for alert in alerts}

    async def all_stop() -> bool:
        return not unwanted & await prometheus.firing(cluster)

    await eventually(all_stop, timeout_s, f"{alerts} stop")
