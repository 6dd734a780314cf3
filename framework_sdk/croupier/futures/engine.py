"""The thread of an executor, with its event loop: from the first call until all are over.

Rule: everything but `submit`, `close` and `cancelled` runs in the loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from croupier.futures.board import Progress
from croupier.futures.call import Call
from croupier.futures.exchange import Exchange
from croupier.futures.fleet import Fleet
from croupier.futures.gate import Gate
from croupier.futures.outcome import ClusterBroken
from croupier.futures.remote import protocol
from croupier.futures.shape import Shape
from croupier.futures.start import UNREACHABLE, ExecutorSettings
from croupier.sdk import CroupierError, Task

_LOGGER: Final = logging.getLogger("croupier.futures")
TICK_S: Final = 0.05
IDLE_TICK_S: Final = 0.5
CLOSE_S: Final = 5.0
LATE_S: Final = 0.05


class Engine:
    """Runs calls in a thread of its own, from the first call until `close`."""

    def __init__(self, settings: ExecutorSettings) -> None:
        self.settings = settings
        # The garbage collector may close an executor at any place, also while the lock is held.
        self._lock = threading.RLock()
        self._arrived: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._changed = asyncio.Event()
        self._told: Progress | None = None
        self._exchange = Exchange(self._loop, self._changed.set, settings)

    # Called in any thread.

    def check_open(self) -> None:
        """Check that calls can be submitted.

        Raises:
            ClusterBroken: if no more calls can run.
            RuntimeError: if the executor was shut down.
        """
        if self._exchange.broken is not None:
            raise ClusterBroken(str(self._exchange.broken))
        if self._is_closed:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def submit(self, call: Call) -> None:
        """Queue a call.

        Raises:
            ClusterBroken: if no more calls can run.
            RuntimeError: if the executor was shut down.
        """
        with self._lock:
            self.check_open()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, args=(call.terms.shape,), name="croupier-futures", daemon=True
                )
                self._thread.start()
            self._post(lambda: self._exchange.add(call))

    def cancelled(self, call: Call) -> None:
        """Drop a call that was cancelled."""
        with self._lock:
            if not self._loop.is_closed():
                self._post(lambda: self._exchange.drop(call))

    def close(self, *, wait: bool, cancel: bool = False, kill: bool = False) -> None:
        """Accept no more calls, and end when all are over.

        Args:
            wait: until the end.
            cancel: the calls that have not begun.
            kill: the workers, and with them the calls that run.
        """
        with self._lock:
            self._is_closed = True
            thread = self._thread
            if thread is None:
                self._loop.close()
                return
            if not self._loop.is_closed():
                if cancel or kill:
                    self._post(self._exchange.cancel_waiting)
                if kill:
                    ended = ClusterBroken("the executor was terminated")
                    self._post(lambda: self._exchange.break_off(ended))
                self._post(lambda: None)
        if wait and thread is not threading.current_thread():
            thread.join()

    def progress(self) -> Progress:
        """Count calls and workers; approximately, while they change."""
        return self._exchange.progress(len(self._arrived))

    def _post(self, action: Callable[[], None]) -> None:
        self._arrived.append(action)
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._take)

    # The thread.

    def _run(self, first: Shape) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._main(first))
        except BaseException as error:
            _LOGGER.exception("the executor failed")
            self._exchange.break_off(ClusterBroken(f"the executor failed: {error!r}"))
        finally:
            self._loop.run_until_complete(_end_rest())
            # Results are given in its threads, whose callbacks may want the lock.
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            with self._lock:
                # What came last, such as a call to an executor that has just broken.
                self._take()
                self._loop.close()

    async def _main(self, first: Shape) -> None:
        reach = self.settings.reach
        self._gate = Gate(self._exchange, self.settings.max_bytes)
        try:
            self._port = await self._gate.listen(reach.listen, reach.port)
        except OSError as error:
            text = f"cannot listen on {reach.listen}:{reach.port}: {error}"
            self._exchange.break_off(ClusterBroken(text))
            return
        self._fleet = Fleet(self.settings, self._exchange, self._make_task, first)
        session = asyncio.create_task(self._session())
        try:
            await self._serve(session)
        finally:
            await self._end(session)

    async def _session(self) -> None:
        try:
            await self._fleet.run()
        except CroupierError as error:
            self._exchange.on_fleet_failed(error)

    async def _serve(self, session: asyncio.Task[None]) -> None:
        """Run until all is over."""
        while not self._is_over():
            self._tick()
            planning = asyncio.create_task(self._plan())
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S if self._exchange.board.running else IDLE_TICK_S):
                    await self._changed.wait()
            if session.done():
                await asyncio.gather(planning, return_exceptions=True)
            if planning.done():
                planning.result()
                continue
            # The master does not answer now; calls go on meanwhile.
            while not (planning.done() or self._is_over()):
                self._tick()
                await asyncio.wait({planning}, timeout=TICK_S)
            if not planning.done():
                planning.cancel()

    async def _plan(self) -> None:
        if self._fleet.framework_id is None or not self._exchange.starts.may_start(
            time.monotonic()
        ):
            return
        await self._fleet.plan(self._exchange.board.missing())

    def _is_over(self) -> bool:
        if self._exchange.broken is not None:
            return True
        return self._is_closed and not self._arrived and self._exchange.is_idle

    async def _end(self, session: asyncio.Task[None]) -> None:
        """End the workers, and then the framework."""
        if self._exchange.broken is None:
            for link in self._exchange.links.values():
                link.send((protocol.EXIT, 0, b""))
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    while self._exchange.links:
                        self._changed.clear()
                        await self._changed.wait()
        await self._gate.close()
        self._tell()
        try:
            if not session.done():
                await self._fleet.stop(teardown=self._fleet.framework_id is not None)
        except CroupierError as error:
            # The workers have ended; the master forgets the framework after its timeout.
            _LOGGER.info("the framework was not removed: %s", error)
        session.cancel()
        await asyncio.gather(session, return_exceptions=True)
        # gRPC completes its last calls from a thread that all loops of the process share; one that
        # finds this loop closed is logged as an error by another.
        await asyncio.sleep(LATE_S)

    def _tick(self) -> None:
        self._exchange.tidy(self.settings.idle_s)
        self._tell()

    def _tell(self) -> None:
        tell, progress = self.settings.on_progress, self.progress()
        if tell is not None and progress != self._told:
            self._told = progress
            try:
                tell(progress)
            except Exception:
                _LOGGER.exception("on_progress failed")

    def _take(self) -> None:
        """Carry out the requests of other threads."""
        with self._lock:
            self._is_woken = False
            actions, self._arrived = self._arrived, deque()
        for action in actions:
            action()
        self._changed.set()

    def _make_task(self, task_id: str, shape: Shape) -> Task:
        given = {
            "host": self.settings.reach.host,
            "port": self._port,
            "certificate": self._gate.certificate,
            "task": task_id,
            "token": self._gate.token(task_id),
            "unreachable": UNREACHABLE,
        }
        return self.settings.task(task_id, shape, json.dumps(given))


async def _end_rest() -> None:
    """Cancel what is left, such as the handshakes of workers that connect just now."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # Their transports close their sockets in the next turns of the loop.
    for _ in range(3):
        await asyncio.sleep(0)
