"""A framework as a program: signals stop it."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Protocol

from croupier.model.errors import CroupierError
from croupier.net.task_scope import end
from croupier.sdk.log import log_event


class Runnable(Protocol):
    """What runs until it is stopped."""

    async def run(self) -> None:
        """Run until `stop`."""
        ...

    async def stop(self, teardown: bool = False) -> None:
        """End it."""
        ...


async def run_until_signalled(program: Runnable, teardown: bool) -> None:
    """Run; SIGINT and SIGTERM stop it, a second one ends the process. Main thread only.

    Raises:
        CroupierError: as `run` does.
    """
    loop, asked = asyncio.get_running_loop(), asyncio.Event()

    def on_signal() -> None:
        asked.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    async def stop_when_asked() -> None:
        await asked.wait()
        try:
            await program.stop(teardown)
        except CroupierError as error:
            log_event(logging.WARNING, "teardown_failed", error=str(error))

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    stopping = asyncio.create_task(stop_when_asked())
    try:
        await program.run()
    finally:
        await end(stopping)
