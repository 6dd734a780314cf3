"""Watches the sandboxes of live tasks that have a disk limit.

A sandbox is measured every 5 s, and sooner if it may reach its limit before: because it grows, or
because the disk has lost half of what the sandbox may still take. So a task exceeds its limit by
what it writes within half a second, or while its files are measured. Files that a task has removed
and keeps open are not seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from croupier.agent.core.ending import Exceeded
from croupier.agent.core.events import LimitExceeded
from croupier.agent.core.tasks import Key
from croupier.agent.isolation.disk_size import DiskWalk
from croupier.model.task import Reason

MIB = 1 << 20
# Seconds between two measurements of a sandbox.
MOST_S = 5.0
LEAST_S = 0.5
TICK_S = 0.25
# Of each second, the watch works at most a fifth.
REST = 4.0
# Files in one step of a walk, and the time of all steps between two rests.
STEP_FILES = 2_000
PASS_S = 0.5
# Files that are measured again when a task has ended, which holds up the loop.
LAST_FILES = 200


@dataclass(slots=True)
class Watched:
    """A sandbox with a limit.

    Attributes:
        limit: bytes.
        size: bytes, by the last measurement.
        peak: the largest size so far.
        due: when the next measurement begins, in monotonic seconds.
        free: free bytes of the disk then.
        is_over: whether the limit was exceeded.
    """

    run: str
    key: Key
    limit: int
    due: float
    size: int = 0
    peak: int = 0
    measured_at: float = 0.0
    free: int = 0
    is_over: bool = False
    walk: DiskWalk | None = None

    @property
    def exceeded(self) -> Exceeded | None:
        """The limit with the peak, if it was exceeded."""
        if not self.is_over:
            return None
        message = f"disk limit of {_mib(self.limit)} exceeded; peak {_mib(self.peak)}"
        return Exceeded(Reason.DISK_LIMIT, message)


class DiskWatch:
    """Measures sandboxes off the loop, and tells which exceed their limits."""

    def __init__(
        self,
        open_sandbox: Callable[[Key], int],
        free: Callable[[], int],
        tell: Callable[[LimitExceeded], None],
        now: Callable[[], float] = monotonic,
    ) -> None:
        """Call `tell` in the loop, again and again until the run is removed.

        `open_sandbox` returns a descriptor that can list a task's sandbox, and `free` the free
        bytes of the disk; both may raise OSError.
        """
        self._open, self._free, self._tell, self._now = open_sandbox, free, tell, now
        self._runs: dict[str, Watched] = {}
        self._is_measuring = False

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: str, key: Key, limit: int) -> None:
        """Watch the sandbox of a run; `limit` is in bytes."""
        self.remove(run)
        self._runs[run] = Watched(run, key, limit, self._now() + LEAST_S)

    def get(self, run: str) -> Watched | None:
        """Return what is known of a run; None if it is not watched."""
        return self._runs.get(run)

    def remove(self, run: str) -> None:
        """Stop watching."""
        watched = self._runs.pop(run, None)
        if watched is not None and watched.walk is not None and not self._is_measuring:
            watched.walk.close()

    def close(self) -> None:
        """Stop watching all runs, after `run` has ended."""
        for run in list(self._runs):
            self.remove(run)

    async def run(self) -> None:
        """Measure for ever."""
        took_s = 0.0
        while True:
            await asyncio.sleep(max(TICK_S, REST * took_s))
            began = self._now()
            await self.check()
            took_s = self._now() - began

    async def check(self) -> None:
        """Measure what is due, and tell what exceeds its limit."""
        now, free = self._now(), self._free_bytes()
        due = [each for each in self._runs.values() if _is_due(each, now, free)]
        if not due:
            return
        # After too many for one pass, the next one begins with those that waited longest.
        due.sort(key=lambda each: each.due)
        self._is_measuring = True
        try:
            # The thread goes on if this is cancelled; it ends soon.
            await asyncio.to_thread(self._measure, due, free)
        finally:
            self._is_measuring = False
        for each in due:
            if each.run not in self._runs:
                if each.walk is not None:
                    each.walk.close()
            elif (exceeded := each.exceeded) is not None:
                self._tell(LimitExceeded(each.key, each.run, exceeded))

    def measure_last(self, run: str) -> Watched | None:
        """Return what is known of a run that has ended; a small sandbox is measured again."""
        watched = self._runs.get(run)
        if watched is None:
            return None
        with suppress(OSError):
            walk = DiskWalk(self._open(watched.key))
            if walk.step(LAST_FILES):
                watched.size = walk.size
            walk.close()
            watched.peak = max(watched.peak, walk.size)
        return watched

    def _free_bytes(self) -> int:
        try:
            return self._free()
        except OSError:
            return 0

    def _measure(self, due: Iterable[Watched], free: int) -> None:
        until = self._now() + PASS_S
        for watched in due:
            while not self._step(watched, free):
                if self._now() >= until:
                    return
            if self._now() >= until:
                return

    def _step(self, watched: Watched, free: int) -> bool:
        """Go on with the measurement of one sandbox; return whether it has ended."""
        now = self._now()
        try:
            if watched.walk is None:
                watched.walk = DiskWalk(self._open(watched.key))
        except OSError:
            # It does not exist yet, or a task of the agent's own user has moved it.
            watched.due = now + MOST_S
            return True
        walk = watched.walk
        is_done = walk.step(STEP_FILES)
        watched.peak = max(watched.peak, walk.size)
        watched.is_over |= walk.size > watched.limit
        if not is_done and not watched.is_over:
            return False
        walk.close()
        watched.walk = None
        watched.due = now + _wait_s(watched, walk.size, now)
        watched.size, watched.measured_at, watched.free = walk.size, now, free
        return True


def _is_due(watched: Watched, now: float, free: int) -> bool:
    if watched.due <= now:
        return True
    is_lost = 2 * (watched.free - free) >= watched.limit - watched.size
    return is_lost and now >= watched.measured_at + LEAST_S and watched.measured_at > 0


def _wait_s(watched: Watched, size: int, now: float) -> float:
    """Return half the time until the limit is reached, at the present growth."""
    if watched.is_over:
        return LEAST_S
    grown = size - watched.size
    if grown <= 0 or not watched.measured_at:
        return MOST_S if watched.measured_at else LEAST_S
    rate = grown / max(now - watched.measured_at, 1e-3)
    return min(max((watched.limit - size) / rate / 2, LEAST_S), MOST_S)


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
