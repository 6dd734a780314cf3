"""Work of a controller that goes on beside its turns.

Rule: two works of one name do not run at the same time, and an error of one ends the command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Works:
    """The works that are under way; an error of one is the result of `over`."""

    def __init__(self, over: asyncio.Future[Any]) -> None:
        self._over = over
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: set[str] = set()

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Start work unless the same is under way."""
        if name in self._busy:
            work.close()
            return
        self._busy.add(name)
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def on_done(done: asyncio.Task[None]) -> None:
            self._tasks.discard(done)
            self._busy.discard(name)
            if not done.cancelled() and done.exception() is not None and not self._over.done():
                self._over.set_exception(done.exception() or RuntimeError())

        task.add_done_callback(on_done)

    async def close(self) -> None:
        """End all work."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
