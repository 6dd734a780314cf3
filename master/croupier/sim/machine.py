"""Machines: the real resources of a node, and the cost of overcommitting them.

A slot scheduler counts tasks, not their resources, so it can overcommit a node. This is the model
of the cost:

- CPU: cores are shared in proportion to demand. With C cores and a demand of c > C, every task
  runs at C/c of its speed; no work is lost.
- Memory: with M bytes and m > M in use, a task runs at 1 / (1 + cost * its GiB) of its speed.
  Work is lost: swapping takes longer than waiting for room would have. As the DRF paper reports
  (section 7.2), tasks with much memory suffer on such nodes.

The paper gives no numbers for the cost. There are two models of it:

- `Even`: the part (m - M)/m of each task's pages is swapped out, and a task touches its memory
  evenly, so the cost is a factor times that part. The factor of PAGING is 5: a task of 2 GiB on
  a node with a quarter too much in use takes 3.5 times as long.
- `Cliff`: some pages are hardly touched, so a little too much costs nothing. Beyond that slack
  the disk is busy at once, and the cost grows with what is in use.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from croupier.model.resources import Resources

GIB = 1024 * 1000

KeyT = TypeVar("KeyT")


@dataclass(frozen=True, slots=True)
class Size:
    """Cores and memory, in thousandths of a core and of a MiB."""

    cpus: int
    mem: int

    @classmethod
    def of(cls, cpus: float, mem_gb: float) -> Size:
        """Return a size from cores and GiB."""
        return cls(round(cpus * 1000), round(mem_gb * GIB))

    @property
    def resources(self) -> Resources:
        """The size as `Resources`."""
        return Resources({"cpus": self.cpus, "mem": self.mem})


@dataclass(frozen=True, slots=True)
class Even:
    """A cost in proportion to the missing pages: all pages are used equally."""

    factor: float

    def cost(self, used: int, size: int) -> float:
        """Return the slowdown per GiB of a task, for `used` > `size`."""
        return self.factor * (used - size) / used


@dataclass(frozen=True, slots=True)
class Cliff:
    """No cost up to `slack`, a part of the node's memory; then `onset`, and more by `growth`."""

    slack: float
    onset: float
    growth: float

    def cost(self, used: int, size: int) -> float:
        """Return the slowdown per GiB of a task, for `used` > `size`."""
        free = size * (1 + self.slack)
        return self.onset + self.growth * (used - free) / size if used > free else 0.0


# The cost of using more memory than a node has.
Paging = Even | Cliff
PAGING: Final = Even(5.0)
_NOTHING = Size(0, 0)


def speed_of(mem: int, used: Size, size: Size, paging: Paging = PAGING) -> float:
    """Return the speed of a task of `mem` on a node of `size` with `used` in use; 1 is full."""
    speed = 1.0
    if used.cpus > size.cpus:
        speed *= size.cpus / used.cpus
    if used.mem > size.mem:
        speed /= 1 + paging.cost(used.mem, size.mem) * (mem / GIB)
    return speed


class _Pace(Generic[KeyT]):
    """Tasks of one memory size, which run at one speed and so end in a fixed order.

    Their progress is counted in seconds of work: `done` at time `anchor`, and `speed` more each
    second since.
    """

    __slots__ = ("anchor", "cpus", "done", "ends", "speed")

    def __init__(self, speed: float, now: float) -> None:
        self.anchor = 0.0 if speed == 1.0 else now
        self.done = 0.0
        self.cpus = 0
        self.speed = speed
        self.ends: list[tuple[float, int, KeyT]] = []

    def work_done(self, now: float) -> float:
        return self.done + (now - self.anchor) * self.speed

    def time_of(self, work: float) -> float:
        return self.anchor + (work - self.done) / self.speed

    def change(self, speed: float, now: float) -> None:
        # While the speed stays, nothing is rounded, and tasks that should end together do.
        if speed != self.speed:
            self.done, self.anchor = self.work_done(now), now
            self.speed = speed


class Machine(Generic[KeyT]):
    """A node, and the progress of its tasks; `used`: what these would use on a larger node."""

    __slots__ = ("_numbers", "_paces", "_paging", "_running", "_was_over", "size", "used")

    def __init__(self, size: Size, paging: Paging = PAGING) -> None:
        self.size = size
        self.used = _NOTHING
        self._paging = paging
        self._was_over = False
        self._numbers = 0
        self._paces: dict[int, _Pace[KeyT]] = {}
        self._running: dict[KeyT, tuple[int, Size]] = {}

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, key: object) -> bool:
        return key in self._running

    @property
    def busy(self) -> Size:
        """The resources really in use; a task that waits for memory uses no CPU."""
        if not self._was_over:
            return self.used
        cpus = sum(pace.cpus * pace.speed for pace in self._paces.values())
        return Size(round(cpus), min(self.used.mem, self.size.mem))

    def start(self, key: KeyT, use: Size, work_s: float, now: float) -> None:
        """Start a task that takes `work_s` seconds at full speed."""
        self._numbers += 1
        self._running[key] = (self._numbers, use)
        self._use(Size(self.used.cpus + use.cpus, self.used.mem + use.mem), now)
        pace = self._paces.get(use.mem)
        if pace is None:
            speed = speed_of(use.mem, self.used, self.size, self._paging)
            pace = self._paces[use.mem] = _Pace(speed, now)
        pace.cpus += use.cpus
        heapq.heappush(pace.ends, (pace.work_done(now) + work_s, self._numbers, key))

    def stop(self, key: KeyT, now: float) -> None:
        """End a task, finished or not."""
        _, use = self._running.pop(key)
        self._paces[use.mem].cpus -= use.cpus
        self._use(Size(self.used.cpus - use.cpus, self.used.mem - use.mem), now)

    def clear(self, now: float) -> None:
        """End all tasks."""
        self._running.clear()
        self._paces.clear()
        self._use(_NOTHING, now)

    def next_end(self) -> float | None:
        """Return when the next task finishes if nothing changes; None if none runs."""
        first = self._first()
        return None if first is None else first[0]

    def done(self, now: float) -> Iterator[KeyT]:
        """Yield the tasks that are finished by `now`, in order; the caller must stop each."""
        while (first := self._first()) is not None and first[0] <= now:
            yield first[1]

    def _first(self) -> tuple[float, KeyT] | None:
        """Return the time and the key of the task that finishes first."""
        best: tuple[float, int, KeyT] | None = None
        empty = []
        for mem, pace in self._paces.items():
            ends = pace.ends
            while ends and self._is_stale(ends[0]):
                heapq.heappop(ends)
            if not ends:
                empty.append(mem)
                continue
            work, number, key = ends[0]
            end = pace.time_of(work)
            if best is None or (end, number) < best[:2]:
                best = (end, number, key)
        for mem in empty:
            del self._paces[mem]
        return None if best is None else (best[0], best[2])

    def _is_stale(self, entry: tuple[float, int, KeyT]) -> bool:
        running = self._running.get(entry[2])
        return running is None or running[0] != entry[1]

    def _use(self, used: Size, now: float) -> None:
        self.used = used
        is_over = used.cpus > self.size.cpus or used.mem > self.size.mem
        if is_over or self._was_over:
            for mem, pace in self._paces.items():
                pace.change(speed_of(mem, used, self.size, self._paging), now)
        self._was_over = is_over
