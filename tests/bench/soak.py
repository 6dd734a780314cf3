"""Whether memory, files and threads stay bounded under churn.

    python -m tests.bench.soak [--minutes N]

One master on SQLite, two agents and two frameworks that launch short tasks as fast as they end.
One agent and the frameworks are killed with SIGKILL and started again in turn; the master
and the other agent live through it all. Once a second it is looked at what processes hold and
how large their files are; printed are the slopes by least squares after a warm-up, as what an
hour would add, and whether that is bounded: less in the time measured than a tenth of what
there is, or than what is noise. Sandboxes are kept up to a number.
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
from itertools import cycle
from pathlib import Path
from statistics import fmean

from croupier.agent.janitor import LOOK_EVERY_S, MOST_KEPT
from tests.chaos.real.checker import Violation
from tests.chaos.real.cluster import Cluster, Layout
from tests.chaos.real.judge import Judge

SEED = 11
HAS = "cpus:24;mem:4GB;disk:1GB"
SAMPLE_S = 1.0
# Between one kill and the next.
KILL_EVERY_S = 10.0
# Of the time, at its beginning: what is not measured. The master keeps the last 10,000 tasks
# to be looked at, and until there are so many its memory grows.
WARM_UP = 0.3
PART = 0.1
MB = 2**20


@dataclass(frozen=True, slots=True)
class Noise:
    """By how much something may change without meaning anything.

    Attributes:
        bound: up to which it may grow by design, at whatever slope; None: it may not.
    """

    unit: str
    amount: float
    scale: float = 1.0
    bound: float | None = None


RSS = Noise("MB", 3.0, MB)
COUNT = Noise("", 3.0)
FILES = Noise("MB", 1.5, MB)
# More tasks than an agent runs in a second here.
MOST_A_SECOND = 100
# Kept for who wants to read what tasks said; how many there are is looked at now and then.
SANDBOXES = Noise("", 3.0, bound=MOST_KEPT + LOOK_EVERY_S * MOST_A_SECOND)


@dataclass(slots=True)
class Series:
    """What one thing was, at which second."""

    noise: Noise
    points: list[tuple[float, float]] = field(default_factory=list)

    def measured(self) -> list[tuple[float, float]]:
        """Without the warm-up."""
        begin, end = self.points[0][0], self.points[-1][0]
        return [point for point in self.points if point[0] >= begin + WARM_UP * (end - begin)]

    def slope(self) -> float:
        """Per second, by least squares."""
        points = self.measured()
        middle, mean = fmean(at for at, _ in points), fmean(value for _, value in points)
        spread = sum((at - middle) ** 2 for at, _ in points)
        return sum((at - middle) * (value - mean) for at, value in points) / spread

    def is_bounded(self) -> bool:
        """Whether the time that was measured added next to nothing."""
        points = self.measured()
        if self.noise.bound is not None:
            return all(value <= self.noise.bound for _, value in points)
        added = self.slope() * (points[-1][0] - points[0][0])
        allowed = max(self.noise.amount * self.noise.scale, PART * points[0][1])
        return added <= allowed


class Soak:
    """The cluster, and what was seen of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.series: dict[str, Series] = {}
        self.kills = 0
        self._began = time.monotonic()

    async def run(self, seconds: float) -> None:
        """Kill and look, for so long."""
        victims = cycle(["a2", "w1", "w2"])
        killed = self._began
        while (now := time.monotonic()) < self._began + seconds:
            if now > killed + KILL_EVERY_S:
                killed = now
                self.kills += 1
                daemon = self.cluster.daemons()[next(victims)]
                daemon.kill()
                daemon.start()
            for name, noise, value in self._looked():
                series = self.series.setdefault(name, Series(noise))
                series.points.append((now - self._began, value))
            await asyncio.sleep(SAMPLE_S)

    def _looked(self) -> Iterator[tuple[str, Noise, float]]:
        for name in ("m1", "a1"):
            proc = Path(f"/proc/{self.cluster.daemons()[name].pid}")
            pages = int((proc / "statm").read_text().split()[1])
            yield f"{name} RSS", RSS, pages * resource.getpagesize()
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
    """Do it; what was seen, what was violated, and how many tasks there were."""
    cluster = Cluster(folder, Layout(agents=2, most=24, has=HAS), SEED)
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


def tell(series: dict[str, Series]) -> bool:
    """A line for each; whether all are bounded."""
    print(f"{'':<16} {'first':>9} {'last':>9} {'most':>9} {'an hour adds':>13}")
    bounded = True
    for name, each in series.items():
        values = [value / each.noise.scale for _, value in each.measured()]
        hour = each.slope() * 3600 / each.noise.scale
        word = "bounded" if each.is_bounded() else "GROWS"
        bounded &= each.is_bounded()
        print(
            f"{name:<16} {values[0]:>9.1f} {values[-1]:>9.1f} {max(values):>9.1f} {hour:>+13.1f} "
            f"{each.noise.unit:<2} {word}"
        )
    return bounded


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak")
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        watch, violations, tasks = asyncio.run(soak(Path(folder) / "c", options.minutes * 60))
    bounded = tell(watch.series)
    print(
        f"soak: {options.minutes:g} minutes, {tasks} tasks, {watch.kills} kills, "
        f"{len(violations)} violations, {'all bounded' if bounded else 'NOT all bounded'}"
    )
    for violation in violations:
        print(f"    {violation}")
    return 0 if bounded and not violations else 1


if __name__ == "__main__":
    sys.exit(main())
