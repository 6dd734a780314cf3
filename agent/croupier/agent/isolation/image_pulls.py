"""Launches that wait for an image: the pull runs in a worker, then the launch is tried again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from croupier.agent.core.effects import Spawn
from croupier.agent.core.events import LaunchFailed, Prepared
from croupier.agent.core.tasks import Key
from croupier.agent.isolation.image_store import ImageStore
from croupier.agent.isolation.image_tools import ImageName, parse_image
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

# Pulls at once, and further images that wait for one.
PULLS: Final = 3
MAX_WAITING: Final = 100


class Pulls:
    """Launches that wait for an image. Only the loop calls it."""

    def __init__(
        self,
        store: ImageStore,
        roots: tuple[Path, ...],
        report: Callable[[Prepared | LaunchFailed], None],
    ) -> None:
        """Call `report`, in the loop, for each launch that waited and was not cancelled."""
        self._store, self._roots, self._report = store, roots, report
        self._loop = asyncio.get_running_loop()
        self._workers = ThreadPoolExecutor(PULLS, "pull")
        self._waiting: dict[str, dict[Key, Spawn]] = {}
        self._queue: deque[ImageName] = deque()
        self._active = 0

    def has_to_wait(self, spawn: Spawn, image: str) -> bool:
        """Return whether the launch has to wait for its image; it is reported once it is here.

        Raises InvalidRequest if the image is not allowed, does not exist, or too many wait.
        """
        name = parse_image(image, self._roots)
        try:
            if self._store.find(name) is not None:
                return False
        except CroupierError as error:
            raise InvalidRequest(str(error)) from error
        if image not in self._waiting:
            if len(self._queue) >= MAX_WAITING:
                raise InvalidRequest(f"image {image}: {MAX_WAITING} other images wait for a pull")
            self._waiting[image] = {}
            self._queue.append(name)
        self._waiting[image][spawn.key] = spawn
        self._start()
        return True

    def cancel(self, key: Key) -> bool:
        """Forget a launch; return whether it waited. A pull that has begun goes on."""
        return any(waiting.pop(key, None) for waiting in self._waiting.values())

    def close(self) -> None:
        """Start no more pulls, and end those that run within a second."""
        self._queue.clear()
        self._store.stop()
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        while self._queue and self._active < PULLS:
            name = self._queue.popleft()
            if not self._waiting[name.text]:
                # All tasks that wanted it were killed.
                del self._waiting[name.text]
                continue
            self._active += 1
            pulled = self._workers.submit(self._store.pull, name)
            pulled.add_done_callback(partial(self._hand_over, name))

    def _hand_over(self, name: ImageName, done: Future[None]) -> None:
        """In the worker: pass the result of a pull to the loop, unless that has ended."""
        if not done.cancelled():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._end, name, done.exception())

    def _end(self, name: ImageName, error: BaseException | None) -> None:
        self._active -= 1
        why = "" if error is None else str(error) or repr(error)
        if error is not None:
            log = _log.warning if isinstance(error, CroupierError) else _log.error
            log("image_not_pulled", image=name.text, reason=why)
        for key, spawn in self._waiting.pop(name.text).items():
            if error is None:
                self._report(Prepared(spawn))
            else:
                self._report(LaunchFailed(key, f"cannot get image {name.text}: {why}"))
        self._start()
