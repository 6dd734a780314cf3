"""Times of the core, on a monotonic clock, as milliseconds since the epoch.

Rule: a time stays the same from one answer to the next, unless the wall clock was set.
"""

from __future__ import annotations

from typing import Final

from croupier.master.core.tasks import Task, TaskSnapshot
from croupier.model.clock import Clock

# Differences above this are a clock that was set, and no imprecision.
STEP_MS: Final = 1_000


class WallTime:
    """Converts times of `clock`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._offset_ms = clock.wall_ms() - round(clock.now() * 1000)

    @property
    def now_ms(self) -> int:
        """The present, in milliseconds since the epoch."""
        return self.of(self.clock.now())

    def of(self, at: float) -> int:
        """Return a time in seconds on the monotonic clock as milliseconds since the epoch."""
        offset_ms = self.clock.wall_ms() - round(self.clock.now() * 1000)
        if abs(offset_ms - self._offset_ms) > STEP_MS:
            self._offset_ms = offset_ms
        return max(0, round(at * 1000) + self._offset_ms)

    def since_ms(self, task: Task | TaskSnapshot) -> int:
        """Return since when a task is in the cluster, in milliseconds since the epoch.

        This master knows when it got a task. If an earlier one got it, the start that its agent
        has reported is nearer to the truth than the time at which this master found it.
        """
        since_ms = self.of(task.since if task.submitted is None else task.submitted)
        is_found = task.submitted is None and task.placed is None
        return min(since_ms, task.started_ms) if is_found and task.started_ms else since_ms
