"""The client that runs tasks on Croupier: by offers, or submitted.

python -m tests.bench.tasks.client_croupier MASTER offers|submit
"""

from __future__ import annotations

import asyncio
import sys
import threading

from croupier.sdk import Framework, Offer, Resources, Task, TaskState, TaskStatus
from tests.bench.tasks.client import serve

UNIT = Resources.parse("cpus:1;mem:64MB")
TRUE = "/bin/true"
RUN_S = 600.0


class Client(Framework):
    """Stays connected, and runs as many tasks as it is told."""

    def __init__(self, master: str) -> None:
        super().__init__(name="bench", master=master, demand=UNIT, demand_count=0)
        self._left = 0
        self.subscribed = asyncio.Event()
        self.over = threading.Event()

    async def begin(self, count: int) -> None:
        """Run `count` tasks; `over` is set when all have ended."""
        self._left = count
        self.over.clear()
        await self._begin(count)

    async def _begin(self, count: int) -> None:
        raise NotImplementedError

    async def on_subscribed(self, framework_id: str) -> None:
        self.subscribed.set()

    async def on_update(self, status: TaskStatus) -> None:
        if status.state.is_terminal:
            assert status.state is TaskState.FINISHED, status
            self._left -= 1
            if not self._left:
                self.over.set()


class ByOffers(Client):
    """Declares its demand, and accepts what it is offered."""

    _todo = 0

    async def _begin(self, count: int) -> None:
        self._todo = count
        await self.demand(UNIT, count=count)

    async def on_offers(self, offers: list[Offer]) -> None:
        for offer in offers:
            free, tasks = offer.resources, []
            while self._todo and free >= UNIT:
                tasks.append(Task([TRUE], resources=UNIT))
                free -= UNIT
                self._todo -= 1
            verdicts = await self.accept(offer, tasks)
            self._todo += sum(not verdict.ok for verdict in verdicts)


class Submitted(Client):
    """Hands all tasks to the master."""

    async def _begin(self, count: int) -> None:
        tasks = [Task([TRUE], resources=UNIT) for _ in range(count)]
        verdicts = await self.submit(tasks)  # type: ignore[attr-defined, unused-ignore]
        assert all(verdict.ok for verdict in verdicts), verdicts


async def live(master: str, way: str) -> None:
    """Serve orders, which a thread reads, until they end."""
    loop = asyncio.get_running_loop()
    client = (Submitted if way == "submit" else ByOffers)(master)
    running = asyncio.create_task(client.run())

    def run(count: int) -> None:
        asyncio.run_coroutine_threadsafe(client.begin(count), loop).result(RUN_S)
        assert client.over.wait(RUN_S)

    await client.subscribed.wait()
    await loop.run_in_executor(None, serve, run)
    await client.stop(teardown=True)
    await running


if __name__ == "__main__":
    asyncio.run(live(*sys.argv[1:]))
