"""Full collections of garbage that stay short, however many objects live long.

Rule: what survives a long collection is frozen, so that no later one looks at it again. Reference
counts still free it; only a cycle of frozen objects stays, until `thaw`. Otherwise a master with
10,000 agents stops for a second each time that its objects have grown by a quarter.

While a master recovers, nearly all that it makes lives long, and there is next to no garbage. So
full collections then examine nothing: what they would examine is frozen before.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Final

LONG_S: Final = 0.02
# Objects until the youngest are collected, while modules are imported.
YOUNG: Final = 5_000
# The same while a daemon runs, and the number of such collections until an older generation is
# collected: a full collection then looks at about 40,000 new objects.
THRESHOLDS: Final = (2_000, 5, 2)
_FULL: Final = 2


class LongCollections:
    """Freezes the survivors of full collections that took longer than `LONG_S`."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        """Measure by `now`, which returns seconds."""
        self._now, self._began, self._grows_until = now, 0.0, 0.0

    def expect_growth(self, for_s: float) -> None:
        """Have full collections examine nothing for so many seconds."""
        self._grows_until = max(self._grows_until, self._now() + for_s)

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        """Note the start or the stop of a collection, as one of `gc.callbacks`."""
        if info["generation"] != _FULL:
            return
        if phase == "start":
            self._began = self._now()
            if self._began < self._grows_until:
                gc.freeze()
        elif self._now() - self._began > LONG_S:
            gc.freeze()


# Those of this process.
LONG_COLLECTIONS: Final = LongCollections()


def freeze_imports() -> None:
    """Exclude imported modules from garbage collection: with them one takes 50 ms of the loop.

    They leave no garbage: to look for it first took 20 ms of a start, and found ten objects.
    """
    gc.set_threshold(*THRESHOLDS)
    gc.freeze()
    # Python waits until a quarter of what the last full collection found is new: now of nothing.
    gc.collect()


def thaw() -> None:
    """Have the next full collection examine all objects, as many may be garbage."""
    gc.unfreeze()
