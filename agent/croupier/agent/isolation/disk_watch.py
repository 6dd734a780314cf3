"""Watches the disk that live tasks take: their sandboxes, and files that those do not show.

A task is measured every 5 s, and sooner if it may reach its limit before: because it grows, or
because the disk has lost half of what the task may still take. That is looked at every 0.1 s. So a
task exceeds its limit by what it writes in about 0.2 s, or while its files are measured.

When the disk runs low, the task that exceeds its request the furthest is named, one at a time, so
that it ends before the agent has to refuse launches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from croupier.agent.core.events import Exceeded, LimitExceeded
from croupier.agent.core.tasks import Key
from croupier.agent.isolation.disk_size import NOTHING, DiskWalk, FileTotals, HiddenFiles
from croupier.model.task import Reason
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

MIB = 1 << 20
# Seconds between two measurements of a task; before its first one; and before the next report of
# one that exceeds its limit.
MOST_S = 5.0
LEAST_S = 0.1
START_S = 0.5
AGAIN_S = 0.5
TICK_S = 0.1
# Of each second, the watch works at most a fifth; half if a task may be about to reach its limit.
REST = 4.0
REST_IN_HASTE = 1.0
# Files in one step of a walk, and the time of all steps between two rests.
STEP_FILES = 2_000
PASS_S = 0.5
# Files that are measured again when a task has ended, which holds up the loop.
LAST_FILES = 200
# A task may have a file for so many bytes of its limit, as ext4 has inodes by default.
BYTES_A_FILE = 16 * 1024
LEAST_FILES = 10_000
# The disk is low below this part of it, or this much. A task is ended for that only if it frees a
# part of that amount, and the next one once the space of the one before can be free.
LOW_PART = 8
LOW_BYTES = 1 << 30
USEFUL_PART = 4
CALM_S = 20.0
LOW_MEASURED_S = 2.0


class Room(NamedTuple):
    """The free bytes of the disk, and its size."""

    free: int
    size: int

    @property
    def low(self) -> int:
        """The free bytes below which the disk is low."""
        return min(self.size // LOW_PART, LOW_BYTES)


@dataclass(slots=True)
class Watched:
    """A run with a limit.

    Attributes:
        limit: bytes.
        due: when the next measurement begins, in monotonic seconds.
        request: bytes that the task asked for.
        is_default: whether the limit is the agent's.
        size: bytes, by the last measurement.
        files: files and directories, by the last measurement.
        peak: the largest size so far.
        free: free bytes of the disk then.
        is_over: whether the limit was exceeded.
        cause: why the task is ended although it keeps to its limit.
        hidden: what the sandbox does not show, when the measurement began.
    """

    run: str
    key: Key
    limit: int
    due: float
    request: int = 0
    is_default: bool = False
    size: int = 0
    files: int = 0
    peak: int = 0
    measured_at: float = 0.0
    free: int = 0
    is_over: bool = False
    cause: str = ""
    walk: DiskWalk | None = None
    hidden: FileTotals = NOTHING

    @property
    def excess(self) -> int:
        """Bytes above the request; negative if the task takes less."""
        return max(self.size, self.measured.size) - self.request

    @property
    def measured(self) -> FileTotals:
        """The result so far of the running measurement."""
        if self.walk is None:
            return NOTHING
        return FileTotals(self.walk.size, self.walk.files) + self.hidden

    @property
    def exceeded(self) -> Exceeded | None:
        """The limit with the peak, if it was exceeded."""
        if not self.is_over:
            return None
        limit = mib(self.limit)
        message = self.cause or f"disk limit of {limit} exceeded; peak {mib(self.peak)}"
        if not self.cause and self.peak <= self.limit:
            message = (
                f"limit of {most_files(self.limit)} files exceeded, for a disk limit of {limit}"
            )
        return Exceeded(Reason.DISK_LIMIT, message)


class DiskWatch:
    """Measures sandboxes off the loop, and tells which exceed their limits."""

    def __init__(
        self,
        open_sandbox: Callable[[Key], int],
        room: Callable[[], Room],
        tell: Callable[[LimitExceeded], None],
        hidden: HiddenFiles,
        shims: Callable[[], Mapping[int, str]] = dict,
        now: Callable[[], float] = monotonic,
    ) -> None:
        """Call `tell` in the loop, again and again until the run is removed.

        `open_sandbox` returns a descriptor that can list a task's sandbox, and `room` that of the
        disk; both may raise OSError. `shims` returns the pids of shims with their runs.
        """
        self._open, self._room, self._tell, self._now = open_sandbox, room, tell, now
        self._hidden, self._shims = hidden, shims
        self._runs: dict[str, Watched] = {}
        self._is_measuring = False
        self._calm_until = 0.0

    def __len__(self) -> int:
        return len(self._runs)

    def add(
        self, run: str, key: Key, limit: int, request: int = 0, *, is_default: bool = False
    ) -> None:
        """Watch a run; `limit` and `request` are in bytes."""
        self.remove(run)
        due, free = self._now() + START_S, self._current_room().free
        self._runs[run] = Watched(run, key, limit, due, request, is_default, free=free)

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
        """Measure until cancelled."""
        took_s, rest = 0.0, REST
        while True:
            await asyncio.sleep(max(TICK_S, rest * took_s))
            began = self._now()
            rest = REST_IN_HASTE if await self.check() else REST
            took_s = self._now() - began

    async def check(self) -> bool:
        """Measure runs that are due, and report those over a limit; return whether to hurry."""
        if not self._runs:
            return False
        now, room = self._now(), self._current_room()
        due = [each for each in self._runs.values() if _is_due(each, now, room)]
        # After too many for one pass, the next one begins with those that waited longest.
        due.sort(key=lambda each: each.due)
        if due:
            self._is_measuring = True
            shims = self._shims()
            try:
                # The thread goes on if this is cancelled; it ends soon.
                await asyncio.to_thread(self._measure, due, shims, room.free)
            finally:
                self._is_measuring = False
        due += self._relieve(room, now)
        for each in due:
            if each.run not in self._runs:
                if each.walk is not None:
                    each.walk.close()
            elif (exceeded := each.exceeded) is not None:
                self._tell(LimitExceeded(each.key, each.run, exceeded))
        return room.free < room.low or any(_is_hasty(each, room) for each in due)

    def _relieve(self, room: Room, now: float) -> list[Watched]:
        """Return the task that has to end because the disk is low; empty if there is none."""
        if any(each.is_over for each in self._runs.values()):
            # Its space will be free.
            self._calm_until = now + CALM_S
        if room.free >= room.low or now < self._calm_until or not self._runs:
            return []
        found = max(self._runs.values(), key=lambda each: each.excess)
        if found.excess < room.low // USEFUL_PART:
            return []
        taken = found.excess + found.request
        found.cause = (
            f"the disk of the agent was low: {mib(room.free)} of {mib(room.size)} were free; the"
            f" task took {mib(taken)}, {mib(found.excess)} more than the {mib(found.request)} that"
            " it asked for"
        )
        found.is_over, found.due, self._calm_until = True, now, now + CALM_S
        found.peak = max(found.peak, taken)
        _log.warning("disk_low", run=found.run, reason=found.cause)
        return [found]

    def measure_last(self, run: str) -> Watched | None:
        """Return what is known of a run that has ended; a small sandbox is measured again."""
        watched = self._runs.get(run)
        if watched is None:
            return None
        with suppress(OSError):
            walk = DiskWalk(self._open(watched.key))
            if walk.step(LAST_FILES):
                watched.size, watched.files = walk.size, walk.files
            walk.close()
            watched.peak = max(watched.peak, walk.size)
        return watched

    def _current_room(self) -> Room:
        try:
            return self._room()
        except OSError:
            return Room(0, 0)

    def _measure(self, due: Iterable[Watched], shims: Mapping[int, str], free: int) -> None:
        until = self._now() + PASS_S
        self._hidden.look(shims)
        for watched in due:
            while not self._step(watched, free):
                if self._now() >= until:
                    return
            if self._now() >= until:
                return

    def _step(self, watched: Watched, free: int) -> bool:
        """Continue the measurement of one run; return whether it is complete."""
        now = self._now()
        try:
            if watched.walk is None:
                watched.walk = DiskWalk(self._open(watched.key))
                watched.hidden = self._hidden.of(watched.run, watched.walk.root)
        except OSError:
            # It does not exist yet, or a task of the agent's own user has moved it.
            watched.due = now + MOST_S
            return True
        walk = watched.walk
        is_done = walk.step(STEP_FILES)
        size, files = watched.measured
        watched.peak = max(watched.peak, size)
        watched.is_over |= size > watched.limit or files > most_files(watched.limit)
        if not is_done and not watched.is_over:
            return False
        walk.close()
        watched.walk = None
        watched.due = now + _wait_s(watched, size, now)
        watched.size, watched.files = size, files
        watched.measured_at, watched.free = now, free
        return True


def _is_due(watched: Watched, now: float, room: Room) -> bool:
    if watched.due <= now:
        return True
    if room.free < room.low and now >= watched.measured_at + LOW_MEASURED_S:
        return True
    return now >= watched.measured_at + LEAST_S and _is_hasty(watched, room)


def _is_hasty(watched: Watched, room: Room) -> bool:
    """Return whether the disk lost half as much space as the run may still use."""
    return not watched.is_over and 2 * (watched.free - room.free) >= watched.limit - watched.size


def _wait_s(watched: Watched, size: int, now: float) -> float:
    """Return half the time until the limit is reached, at the present growth."""
    if watched.is_over:
        return AGAIN_S
    grown = size - watched.size
    if grown <= 0 or not watched.measured_at:
        return MOST_S if watched.measured_at else LEAST_S
    rate = grown / max(now - watched.measured_at, 1e-3)
    return min(max((watched.limit - size) / rate / 2, LEAST_S), MOST_S)


def most_files(limit: int) -> int:
    """Return the files that a task may have, by its limit in bytes."""
    return max(limit // BYTES_A_FILE, LEAST_FILES)


def mib(size: int) -> str:
    """Return a number of bytes for people, in MiB with one decimal."""
    return f"{size / MIB:.1f} MiB"
