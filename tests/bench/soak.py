"""Memory, files and threads stay bounded under churn.

    python -m tests.bench.soak [--minutes N]

One master on SQLite, two agents and two frameworks that launch short tasks as fast as they end.
One agent and the frameworks are killed with SIGKILL and restarted in turn; the master and the
other agent run throughout. The program samples memory, descriptors, threads and files once a
second. It prints the slope by least squares after a warm-up, as growth per hour, and a verdict:
bounded if the growth in the measured time is below a tenth of the value, or below noise.
Sandboxes are kept up to a number. The master keeps a number of ended tasks and task ids. While
these histories fill, its memory may grow by the size of their entries, and the table says so. To
judge memory without them, a run must end more tasks than the histories hold: ten minutes on an
idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from croupier.agent.janitor import CLEAN_EVERY_S, MOST_KEPT
from croupier.master.core.settings import Settings
from tests.chaos.real.checker import Violation
from tests.chaos.real.cluster import Cluster, Layout
from tests.chaos.real.judge import Judge
from tests.chaos.real.ledger import read_ledger

SEED = 11
HAS = "cpus:24;mem:4GB;disk:1GB"
SAMPLE_S = 1.0
# Interval between kills.
KILL_EVERY_S = 10.0
# Part of the time at the beginning that is not measured.
WARM_UP = 0.3
PART = 0.1
MB = 2**20


@dataclass(frozen=True, slots=True)
class History:
    """A history of ended tasks: at most `most` entries of at most `size` bytes."""

    most: int
    size: int

    def growth(self, before: int, after: int) -> int:
        """Return the largest growth from `before` to `after` ended tasks."""
        return (min(after, self.most) - min(before, self.most)) * self.size


@dataclass(frozen=True, slots=True)
class Noise:
    """Growth of a value that is no leak.

    Attributes:
        unit: for the table.
        amount: growth that counts as noise, in units.
        scale: size of a unit.
        bound: value up to which any slope is allowed by design; None: there is none.
        histories: histories that fill by design.
    """

    unit: str
    amount: float
    scale: float = 1.0
    bound: float | None = None
    histories: tuple[History, ...] = ()


FRAMEWORKS = 2
# Twice the size of an entry: a task takes 1.7 kB, an id 0.2 kB.
ENDED_TASKS = History(Settings().completed_tasks, 3500)
SPENT_IDS = History(FRAMEWORKS * Settings().used_task_ids, 400)
RSS = Noise("MB", 3.0, MB)
MASTER_RSS = Noise("MB", 3.0, MB, histories=(ENDED_TASKS, SPENT_IDS))
COUNT = Noise("", 3.0)
FILES = Noise("MB", 1.5, MB)
# An upper bound of the tasks that an agent runs in a second.
MOST_A_SECOND = 100
# The agent keeps sandboxes for readers of output, and counts them only now and then.
SANDBOXES = Noise("", 3.0, bound=MOST_KEPT + CLEAN_EVERY_S * MOST_A_SECOND)


class Verdict(Enum):
    """Verdict on a series."""

    BOUNDED = "bounded"
    FILLS = "bounded by histories that fill"
    GROWS = "GROWS"


class Point(NamedTuple):
    """A sample: its second, its value and the number of ended tasks."""

    at: float
    value: float
    ended: int


@dataclass(slots=True)
class Series:
    """Samples of one value."""

    noise: Noise
    points: list[Point] = field(default_factory=list)

    def measured(self) -> list[Point]:
        """Return the samples after the warm-up."""
        begin, end = self.points[0].at, self.points[-1].at
        return [point for point in self.points if point.at >= begin + WARM_UP * (end - begin)]

    def slope(self) -> float:
        """Return the growth per second, by least squares."""
        points = self.measured()
        middle, mean = fmean(point.at for point in points), fmean(point.value for point in points)
        spread = sum((point.at - middle) ** 2 for point in points)
        return sum((p.at - middle) * (p.value - mean) for p in points) / spread

    def verdict(self) -> Verdict:
        """Judge the growth in the measured time."""
        points = self.measured()
        first, last = points[0], points[-1]
        if self.noise.bound is not None:
            most = max(point.value for point in points)
            return Verdict.BOUNDED if most <= self.noise.bound else Verdict.GROWS
        added = self.slope() * (last.at - first.at)
        allowed = max(self.noise.amount * self.noise.scale, PART * first.value)
        if added <= allowed:
            return Verdict.BOUNDED
        filled = sum(each.growth(first.ended, last.ended) for each in self.noise.histories)
        return Verdict.FILLS if added <= allowed + filled else Verdict.GROWS


class Soak:
    """The cluster and its samples."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.series: dict[str, Series] = {}
        self.kills = 0
        self._began = time.monotonic()

    async def run(self, seconds: float) -> None:
        """Kill and sample for so long."""
        victims = cycle(["a2", "w1", "w2"])
        killed = self._began
        while (now := time.monotonic()) < self._began + seconds:
            if now > killed + KILL_EVERY_S:
                killed = now
                self.kills += 1
                daemon = self.cluster.daemons()[next(victims)]
                daemon.kill()
                daemon.start()
            ended = sum(read_ledger(self.cluster.folder / "ran").ends.values())
            for name, noise, value in self._samples():
                series = self.series.setdefault(name, Series(noise))
                series.points.append(Point(now - self._began, value, ended))
            await asyncio.sleep(SAMPLE_S)

    def _samples(self) -> Iterator[tuple[str, Noise, float]]:
        for name in ("m1", "a1"):
            proc = Path(f"/proc/{self.cluster.daemons()[name].pid}")
            pages = int((proc / "statm").read_text().split()[1])
            noise = MASTER_RSS if name == "m1" else RSS
            yield f"{name} RSS", noise, pages * resource.getpagesize()
            yield f"{name} descriptors", COUNT, sum(1 for _ in (proc / "fd").iterdir())
            yield f"{name} threads", COUNT, sum(1 for _ in (proc / "task").iterdir())
        folder = self.cluster.folder
        yield "store", FILES, _size(folder / "store")
        for name in ("a1", "a2"):
            yield f"{name} checkpoint", FILES, _size(folder / name, "checkpoint*")
            yield f"{name} run files", COUNT, _number(folder / name / "runs")
            yield f"{name} sandboxes", SANDBOXES, _number(folder / name / "sandboxes", "*/*")


def _size(folder: Path, pattern: str = "*") -> int:
    total = 0
    for path in folder.glob(pattern):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _number(folder: Path, pattern: str = "*") -> int:
    return sum(1 for _ in folder.glob(pattern))


async def soak(folder: Path, seconds: float) -> tuple[Soak, list[Violation], int]:
    """Run the cluster; return the samples, the violations and the number of tasks."""
    cluster = Cluster(folder, Layout(agents=2, frameworks=FRAMEWORKS, most=24, has=HAS), SEED)
    try:
        await cluster.start()
        cluster.control("run")
        watch = Soak(cluster)
        await watch.run(seconds)
        judge = Judge(cluster, SEED)
        violations = await judge.judge()
        return watch, violations, judge.tasks.total()
    finally:
        await cluster.stop()


def report(series: dict[str, Series]) -> Verdict:
    """Print a line for each series, and return the worst verdict."""
    print(f"{'':<16} {'first':>9} {'last':>9} {'most':>9} {'an hour adds':>13}")
    found = set()
    for name, each in series.items():
        values = [point.value / each.noise.scale for point in each.measured()]
        hour = each.slope() * 3600 / each.noise.scale
        verdict = each.verdict()
        found.add(verdict)
        print(
            f"{name:<16} {values[0]:>9.1f} {values[-1]:>9.1f} {max(values):>9.1f} {hour:>+13.1f} "
            f"{each.noise.unit:<2} {verdict.value}"
        )
    return next(each for each in reversed(Verdict) if each in found)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak")
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        watch, violations, tasks = asyncio.run(soak(Path(folder) / "c", options.minutes * 60))
    worst = report(watch.series)
    summary = {
        Verdict.BOUNDED: "all bounded",
        Verdict.FILLS: "all bounded as far as they can be judged while histories fill",
        Verdict.GROWS: "NOT all bounded",
    }
    print(
        f"soak: {options.minutes:g} minutes, {tasks} tasks, {watch.kills} kills, "
        f"{len(violations)} violations, {summary[worst]}"
    )
    for violation in violations:
        print(f"    {violation}")
    return 1 if violations or worst is Verdict.GROWS else 0


if __name__ == "__main__":
    sys.exit(main())
