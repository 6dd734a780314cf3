"""Tasks that live and end together, and the cancellation of one's own.

gRPC confuses a cancelled call with a cancelled task. A stream that the peer cancels raises
CancelledError in its reader, although its task is not cancelled. A call whose task is cancelled
just as the call ends may raise its status instead of CancelledError, and the task would continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


async def until_one_ends(*parts: Coroutine[Any, Any, None]) -> None:
    """Run all `parts` until one returns or raises, cancel the others, and raise its exception."""
    async with racing(*parts) as tasks:
        for task in tasks:
            if task.done():
                task.result()


@asynccontextmanager
async def racing(
    *parts: Coroutine[Any, Any, Any], timeout_s: float | None = None
) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Run `parts` until one has ended, or for `timeout_s`; the end of the context ends the rest."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        yield tasks
    finally:
        await end(*tasks)


async def until_set(
    event: asyncio.Event, *tasks: asyncio.Task[Any], timeout_s: float | None = None
) -> None:
    """Wait for `event`; raise the error of one of `tasks`, which run on, that ends before it."""
    one_ends = asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    async with racing(event.wait(), one_ends, timeout_s=timeout_s):
        for task in tasks:
            if task.done():
                task.result()


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel `tasks` and wait until they have ended, whatever they raise."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def reraise_own_cancellation() -> None:
    """Raise CancelledError if this task was cancelled; for where a gRPC call has failed."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
