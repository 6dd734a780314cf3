"""A framework that records the calls of its handlers, and a context that runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from croupier.net.client_session import SessionTimes
from croupier.sdk import (
    CroupierError,
    Failure,
    Framework,
    Offer,
    Resources,
    Task,
    TaskStatus,
    TaskVerdict,
)
from croupier.sdk.settings import Settings
from croupier.sdk.testing import FakeMaster

UNIT = Resources.parse("cpus:1;mem:64MB")
HASTY_TIMES = SessionTimes(
    backoff_first_s=0.02,
    backoff_cap_s=0.1,
    election_first_s=0.02,
    settled_s=0.1,
    least_silence_s=0.3,
)
HASTY = Settings(times=HASTY_TIMES)


def task(task_id: str | None = None) -> Task:
    return Task(["true"], resources=UNIT, task_id=task_id)


class Recorder(Framework):
    """A framework that keeps offers, and accepts none by itself."""

    _settings: ClassVar[Settings] = HASTY

    def __init__(self, master: str, **more: Any) -> None:
        super().__init__(master=master, **more)
        self.subscriptions: list[str] = []
        self.offers: asyncio.Queue[Offer] = asyncio.Queue()
        self.batches: list[list[str]] = []
        self.rescinded: list[str] = []
        self.statuses: list[TaskStatus] = []
        self.failures: list[Failure] = []
        self.errors: list[CroupierError] = []

    @property
    def states(self) -> list[tuple[str, str]]:
        """Task ids and states, in order."""
        return [(status.task_id, status.state.name) for status in self.statuses]

    async def on_subscribed(self, framework_id: str) -> None:
        self.subscriptions.append(framework_id)

    async def on_offers(self, offers: list[Offer]) -> None:
        self.batches.append([offer.id for offer in offers])
        for offer in offers:
            self.offers.put_nowait(offer)

    async def on_rescind(self, offer_id: str) -> None:
        self.rescinded.append(offer_id)

    async def on_update(self, status: TaskStatus) -> None:
        self.statuses.append(status)

    async def on_failure(self, failure: Failure) -> None:
        self.failures.append(failure)

    async def on_error(self, error: CroupierError) -> None:
        self.errors.append(error)

    async def next_offer(self) -> Offer:
        async with asyncio.timeout(30):
            return await self.offers.get()

    async def launch(self, master: FakeMaster, *tasks: Task) -> list[TaskVerdict]:
        """Have the master offer resources for `tasks`, and launch them."""
        master.offer("cpus:64;mem:64GB")
        return await self.accept(await self.next_offer(), tasks)


@asynccontextmanager
async def running(framework: Framework, master: FakeMaster) -> AsyncIterator[asyncio.Task[None]]:
    """Run `framework` from its first SUBSCRIBE on, and stop it at the end if it still runs."""
    task = asyncio.create_task(framework.run())
    try:
        await master.subscribed()
        yield task
    finally:
        async with asyncio.timeout(30):
            await framework.stop()
            await asyncio.gather(task, return_exceptions=True)
    task.result()
