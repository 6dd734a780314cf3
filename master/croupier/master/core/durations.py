"""How long tasks run, learned from those that ended in this term. Pure.

Rule: bounded, and the latest runs count most. A histogram has buckets of a logarithmic scale, four
to the octave, so a quantile is at most 19 % above the true one. Its counts are halved when it has
`FULL` runs. The least recently used histograms are dropped. A new leader starts anew.

Runs are known by the name of the framework, the role and the name of the task; a task whose own
name has too few runs is taken for one of its framework in its role.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from croupier.model.ids import Role

# Buckets to the octave, as powers of 2 ** (1 / 4) in 1/65536.
_PARTS: Final = (65_536, 77_936, 92_682, 110_218)
_ONE: Final = 65_536
# Runs until the counts are halved, and that a quantile needs.
FULL: Final = 256
LEAST_RUNS: Final = 3
MAX_KINDS: Final = 2_000
# Quantiles are given in thousandths.
MILLE: Final = 1_000

# Framework's name, role, task's name; the last is empty for all tasks of the framework in the role.
Kind = tuple[str, Role, str]


class Histogram:
    """Durations in milliseconds.

    Attributes:
        runs: the number of durations that count.
    """

    __slots__ = ("_counts", "runs")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.runs = 0

    def add(self, ms: int) -> None:
        """Count a duration. O(1), but for the halving."""
        bucket = bucket_of(ms)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.runs += 1
        if self.runs >= FULL:
            self._counts = {b: n // 2 for b, n in self._counts.items() if n > 1}
            self.runs = sum(self._counts.values())

    def law(self) -> Law:
        """Return the durations as they are now. O(buckets)."""
        rows = sorted(self._counts.items())
        bounds = tuple(most_ms(bucket) for bucket, _ in rows)
        return Law(bounds, tuple(accumulate(number for _, number in rows)))


@dataclass(frozen=True, slots=True)
class Law:
    """The distribution of durations at one moment.

    Attributes:
        bounds: the longest duration of each bucket, in milliseconds, ascending.
        sums: the number of durations in each bucket and those before it.
    """

    bounds: tuple[int, ...]
    sums: tuple[int, ...]

    def quantile_ms(self, per_mille: int, above_ms: int = 0) -> int | None:
        """Return the quantile of the durations that are longer than `above_ms`; None if none is."""
        first = bisect_right(self.bounds, above_ms)
        if first == len(self.bounds):
            return None
        below = self.sums[first - 1] if first else 0
        wanted = below * MILLE + per_mille * (self.sums[-1] - below)
        return self.bounds[max(first, bisect_left(self.sums, -(-wanted // MILLE)))]


def bucket_of(ms: int) -> int:
    """Return the number of the bucket that a duration is in: `most_ms` of it is not less."""
    octave = max(ms - 1, 1).bit_length() - 1
    bucket = 4 * octave
    while most_ms(bucket) < ms:
        bucket += 1
    return bucket


def most_ms(bucket: int) -> int:
    """Return the longest duration of a bucket."""
    return (_PARTS[bucket % 4] << bucket // 4) // _ONE


class Durations:
    """The durations of the tasks that ended."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[Kind, Histogram] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kinds)

    def note(self, framework: str, role: Role, task: str, ms: int) -> None:
        """Note how long a task has run. O(1)."""
        for name in {task, ""}:
            kind = (framework, role, name)
            self._kinds.setdefault(kind, Histogram()).add(ms)
            self._kinds.move_to_end(kind)
        while len(self._kinds) > MAX_KINDS:
            self._kinds.popitem(last=False)

    def of(self, framework: str, role: Role, task: str = "") -> Law | None:
        """Return how long tasks like this one run; None if too few have ended."""
        for name in (task, ""):
            found = self._kinds.get((framework, role, name))
            if found is not None and found.runs >= LEAST_RUNS:
                return found.law()
        return None


def left_ms(known: Law | None, declared_ms: int, elapsed_ms: int, per_mille: int) -> int | None:
    """Return how much longer a task runs, of which `elapsed_ms` have passed; None if unknown.

    A task that has run longer than all like it runs on as long again, or by chance much longer: in
    the median twice its time, as under a Pareto law of exponent 1. None runs longer than it
    declared.
    """
    whole: int | None = None
    if known is not None:
        whole = known.quantile_ms(per_mille, elapsed_ms)
        if whole is None:
            whole = elapsed_ms * MILLE // max(MILLE - per_mille, 1)
    if declared_ms:
        whole = declared_ms if whole is None else min(whole, declared_ms)
    return None if whole is None else max(whole - elapsed_ms, 0)
