"""Removes the sandboxes of tasks that are no more, some time after."""

from __future__ import annotations

import asyncio
import shutil
from collections import deque
from pathlib import Path

import structlog

from croupier.agent.core.tasks import Key
from croupier.agent.sandbox import Sandboxes
from croupier.model.clock import Clock
from croupier.model.errors import InvalidRequest

_log = structlog.get_logger("croupier.agent")

KEEP_S = 7 * 24 * 3600.0
# The oldest go first when there are more, however young they are.
MOST_KEPT = 20_000
LOOK_EVERY_S = 10.0
# Removed in one go, off the loop.
SLICE = 100


class Janitor:
    """Knows which sandboxes nobody runs in."""

    def __init__(
        self,
        sandboxes: Sandboxes,
        clock: Clock,
        keep_s: float = KEEP_S,
        most_kept: int = MOST_KEPT,
    ) -> None:
        """Keep each for `keep_s` seconds after its task, but never more than `most_kept`."""
        self._sandboxes, self._clock = sandboxes, clock
        self._keep_s, self._most_kept = keep_s, most_kept
        self._retired: deque[tuple[float, Path]] = deque()

    def __len__(self) -> int:
        return len(self._retired)

    def retire(self, key: Key) -> None:
        """The task is no more; it may never have had a sandbox."""
        try:
            path = Path(self._sandboxes.path_of(key))
        except InvalidRequest:
            return
        self._retired.append((self._clock.now(), path))

    def adopt(self) -> None:
        """Take over what an earlier life of the agent has left, oldest first. O(sandboxes)."""
        found = [path for path in self._sandboxes.root.glob("*/*") if path.is_dir()]
        found.sort(key=lambda path: path.stat().st_mtime)
        now = self._clock.now()
        self._retired.extendleft((now, path) for path in reversed(found))

    async def run(self) -> None:
        """Look every now and then, for ever."""
        while True:
            await self.clean()
            await asyncio.sleep(LOOK_EVERY_S)

    async def clean(self) -> None:
        """Remove what was kept for long enough, and what is too much."""
        while batch := self._take_slice():
            await asyncio.to_thread(_remove, batch)

    def _take_slice(self) -> list[Path]:
        batch: list[Path] = []
        now = self._clock.now()
        while self._retired and len(batch) < SLICE:
            old = now - self._retired[0][0] >= self._keep_s
            if not old and len(self._retired) <= self._most_kept:
                break
            batch.append(self._retired.popleft()[1])
        return batch


def _remove(paths: list[Path]) -> None:
    for path in paths:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            _log.warning("sandbox_not_removed", path=str(path), error=str(error))
