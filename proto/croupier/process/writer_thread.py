"""A thread for blocking writes, which the loop waits for without a wake-up while the disk is fast.

To be woken by another thread costs a loop about 0.1 ms of processor time, as much as a short commit
itself. So the loop blocks for a short write of a fast disk, for `BLOCK_S` at most; after that, and
while the disk is slow, it serves others meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, Generic, TypeVar

# The loop blocks for writes while they usually take less than this.
SHORT_S: Final = 0.001
# The longest time for which it blocks.
BLOCK_S: Final = 0.002
# The part of the latest write in the usual time.
_WEIGHT: Final = 0.2

T = TypeVar("T")


class _Job(Generic[T]):
    """Work for the thread: a future of the library costs as much as a short commit."""

    __slots__ = ("_error", "_is_done", "_result", "_wake", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        # Held until the work is done.
        self._is_done = Lock()
        self._is_done.acquire()
        self._error: BaseException | None = None
        self._wake: Callable[[], object] | None = None

    def do(self) -> None:
        """Run the work in the thread."""
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
        self._is_done.release()
        if self._wake is not None:
            # The loop may have ended meanwhile.
            with suppress(RuntimeError):
                self._wake()

    def is_done_within(self, seconds: float) -> bool:
        """Block until the work is done, for at most `seconds`; return whether it is."""
        return self._is_done.acquire(timeout=seconds)

    async def done(self) -> None:
        """Wait for the result, without blocking the loop."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        # First: else the thread may be done before it knows whom to wake.
        self._wake = lambda: loop.call_soon_threadsafe(_wake, waiter)
        if not self._is_done.acquire(blocking=False):
            await waiter

    def result(self) -> T:
        """Return the result of work that is done, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._result


class WriterThread:
    """Does blocking work in order, in a thread; `usual_s` is how long short work takes lately."""

    def __init__(self, name: str) -> None:
        """Start no thread before the first work."""
        self._name = name
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._is_shut = False
        self.usual_s = SHORT_S

    async def run(self, work: Callable[[], T], *, is_short: bool = False) -> T:
        """Run `work` and return its result, or raise as it; `is_short`: it is as a small write."""
        assert not self._is_shut
        if self._thread is None:
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        job = _Job((lambda: self._timed(work)) if is_short else work)
        self._jobs.put(job)
        blocks = is_short and self.usual_s < SHORT_S
        if not (blocks and job.is_done_within(BLOCK_S)):
            await job.done()
        return job.result()

    def shutdown(self) -> None:
        """Wait for the work that was begun, and end the thread."""
        self._is_shut = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.do()
            # Not kept while there is no work.
            del job

    def _timed(self, work: Callable[[], T]) -> T:
        began = time.monotonic()
        try:
            return work()
        finally:
            took = time.monotonic() - began
            usual = self.usual_s + _WEIGHT * (took - self.usual_s)
            self.usual_s = took if took > BLOCK_S else usual


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
