"""The process of an application: its main coroutine, and the framework that it serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from croupier.cli.connection import Refused, with_advice
from croupier.cli.flags import Target
from croupier.model.errors import CroupierError, InvalidRequest, PermissionDenied, Unauthenticated
from croupier.process.daemon import raise_file_limit
from croupier.sdk import Framework

T = TypeVar("T")


def run_application(target: Target, main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run `main`; return its exit code.

    Raises:
        CroupierError: as `main` does, with advice about credentials.
    """
    raise_file_limit()
    # The lines of applications say what users need.
    logging.getLogger("croupier.sdk").disabled = True
    try:
        return asyncio.run(main())
    except InvalidRequest as error:
        # The command line is valid: the master has refused it.
        raise Refused(str(error)) from None
    except (Unauthenticated, PermissionDenied) as error:
        raise with_advice(error, target.credentials()) from None


class Crew:
    """Tasks of the event loop that end together."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Future[Any]] = []

    def own(self, running: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task."""
        task = asyncio.create_task(running)
        self._tasks.append(task)
        return task

    async def end(self, *further: asyncio.Future[Any]) -> None:
        """Cancel all tasks, and `further` futures; their errors are dropped."""
        everything = (*self._tasks, *further)
        self._tasks.clear()
        for each in everything:
            each.cancel()
        await asyncio.gather(*everything, return_exceptions=True)


async def first(*futures: asyncio.Future[Any]) -> None:
    """Wait until one of `futures` is done."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def close(framework: Framework, session: asyncio.Future[None], *, teardown: bool) -> None:
    """End a framework and its session; errors are dropped."""
    if not session.done():
        with suppress(CroupierError):
            await framework.stop(teardown=teardown)
    with suppress(CroupierError):
        await session
