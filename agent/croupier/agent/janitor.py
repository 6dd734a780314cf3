"""Removes the sandboxes of tasks that are no more: the later, the emptier the disk is.

Rule: what is removed is first moved out of the way, in the loop. So a task that is launched
under the same name meanwhile never loses its sandbox, and what a task still lives in is not
touched at all.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path

from croupier.agent.core.tasks import Key
from croupier.agent.remove_tree import remove
from croupier.agent.sandbox import Sandboxes
from croupier.model.clock import Clock
from croupier.model.errors import InvalidRequest
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

# On an empty disk; the time shrinks with the share of the disk that is free.
KEEP_S = 7 * 24 * 3600.0
# Of the disk: with no more free than this, nothing is kept.
HEADROOM = 0.1
# However full the disk: whoever reads the output may read to its end.
LEAST_S = 30.0
# The oldest go first when there are more, however young they are.
MOST_KEPT = 20_000
LOOK_EVERY_S = 10.0
# Removed in one go.
SLICE = 100


def used_share(path: Path) -> float:
    """How much of the disk that `path` is on is used, or not for us; from 0 to 1.

    Raises:
        OSError: if that cannot be found out.
    """
    disk = os.statvfs(path)
    return 1 - disk.f_bavail / disk.f_blocks if disk.f_blocks else 0.0


class Janitor:
    """Knows which sandboxes nobody runs in.

    Attributes:
        removed: how many it has removed so far.
        allowed_s: for how long a sandbox is kept, as full as the disk was at the last look.
    """

    def __init__(
        self,
        sandboxes: Sandboxes,
        clock: Clock,
        keep_s: float = KEEP_S,
        most_kept: int = MOST_KEPT,
        used: Callable[[Path], float] = used_share,
    ) -> None:
        """Keep each for up to `keep_s` seconds after its task, but never more than `most_kept`.

        `used` tells how much of the disk is used.
        """
        self._sandboxes, self._clock, self._used = sandboxes, clock, used
        self._keep_s, self._most_kept = keep_s, most_kept
        self._retired: deque[tuple[float, Key]] = deque()
        self.removed = 0
        self.allowed_s = keep_s

    def __len__(self) -> int:
        return len(self._retired)

    def retire(self, key: Key) -> None:
        """The task is no more; it may never have had a sandbox."""
        self._sandboxes.vacate(key)
        self._retired.append((self._clock.now(), key))

    def adopt(self, live: Collection[Key] = ()) -> None:
        """Take over what an earlier life of the agent has left, oldest first. O(sandboxes).

        The sandboxes of `live` tasks are left alone until these are retired. The others are
        as old as the last that was written to them.
        """
        for key in live:
            self._sandboxes.occupy(key)
        now, wall_s = self._clock.now(), self._clock.wall_ms() / 1000
        found: list[tuple[float, Key]] = []
        for key, written_s in self._sandboxes.found():
            if not self._sandboxes.is_occupied(key):
                found.append((now - max(0.0, wall_s - written_s), key))
        found.sort()
        self._retired.extendleft(reversed(found))

    async def run(self) -> None:
        """Look every now and then, for ever."""
        await remove([self._sandboxes.trash])
        while True:
            await self.clean()
            await asyncio.sleep(LOOK_EVERY_S)

    async def clean(self) -> None:
        """Remove what was kept for long enough, and what is too much."""
        await remove(self._sandboxes.take_replaced())
        # Looked at anew for each slice: room may have been made meanwhile.
        while self._retired and (batch := self._take_slice(self._allow())):
            self.removed += await remove(batch)

    def _allow(self) -> float:
        try:
            free = 1 - self._used(self._sandboxes.root)
        except OSError as error:
            _log.warning("disk_not_looked_at", error=str(error))
            return self.allowed_s
        least_s = min(LEAST_S, self._keep_s)
        self.allowed_s = max(least_s, self._keep_s * (free - HEADROOM))
        return self.allowed_s

    def _take_slice(self, allowed_s: float) -> list[Path]:
        """Move the oldest out of the way; empty once none is old enough."""
        batch: list[Path] = []
        now = self._clock.now()
        for _ in range(min(SLICE, len(self._retired))):
            old = now - self._retired[0][0] >= allowed_s
            if not old and len(self._retired) <= self._most_kept:
                break
            batch.extend(self._move(self._retired.popleft()[1]))
        return batch

    def _move(self, key: Key) -> list[Path]:
        """Where the sandbox is now; nothing if it is in use again, or there is none."""
        if self._sandboxes.is_occupied(key):
            return []
        try:
            moved = self._sandboxes.move_out(key)
        except InvalidRequest:
            return []
        except OSError as error:
            path = self._sandboxes.path_of(key)
            _log.warning("sandbox_not_removed", path=path, error=str(error))
            return []
        return [] if moved is None else [moved]
