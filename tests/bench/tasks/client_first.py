"""The client of a cold start: has the SDK imported, and connects when it is told to run.

python -m tests.bench.tasks.client_first MASTER
"""

from __future__ import annotations

import asyncio
import sys

from tests.bench.tasks.client import serve
from tests.bench.tasks.client_croupier import ByOffers


class First(ByOffers):
    """Stops after its first tasks."""

    count = 1

    async def on_subscribed(self, framework_id: str) -> None:
        await self.begin(self.count)


def main(master: str) -> None:
    async def until_done(count: int) -> None:
        client = First(master)
        client.count = count
        running = asyncio.create_task(client.run())
        await asyncio.get_running_loop().run_in_executor(None, client.over.wait)
        running.cancel()

    serve(lambda count: asyncio.run(until_done(count)))


if __name__ == "__main__":
    main(sys.argv[1])
