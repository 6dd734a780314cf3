"""A framework as a program: signals stop it."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING

from croupier.model.errors import CroupierError
from croupier.net.task_scope import end
from croupier.sdk.log import log_event

if TYPE_CHECKING:
    from croupier.sdk.framework import Framework


async def run_until_signalled(framework: Framework, teardown: bool) -> None:
    """Run; SIGINT and SIGTERM stop it, a second one ends the process. Main thread only.

    Raises:
        CroupierError: as `Framework.run` does.
    """
    loop, signalled = asyncio.get_running_loop(), asyncio.Event()

    def on_signal() -> None:
        signalled.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    async def stop_when_signalled() -> None:
        await signalled.wait()
        try:
            await framework.stop(teardown)
        except CroupierError as error:
            log_event(logging.WARNING, "teardown_failed", error=str(error))

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    stopping = asyncio.create_task(stop_when_signalled())
    try:
        await framework.run()
    finally:
        await end(stopping)
