"""Time without a leader in a cluster of three masters whose leader is killed repeatedly.

    python -m tests.bench.failover [--kills N] [--lease SECONDS]

Three masters and three members of etcd run on loopback, with two frameworks that run tasks, and a
third that declines all offers and records their times. A failover ends with the first offer of the
new leader. The end of the run checks that no task was lost or run twice.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from croupier.sdk import Framework, Offer, Resources
from tests.chaos.real.checker import Violation
from tests.chaos.real.cluster import Cluster, Layout
from tests.chaos.real.judge import Judge
from tests.harness.eventually import eventually

UNIT = Resources.parse("cpus:1;mem:64MB")
SEED = 7
# The time limit of a failover, longer than any lease.
PATIENCE_S = 60.0
# A killed master is started again once another leads, as a supervisor would.
LEADS_FOR_S = 1.0


class Watcher(Framework):
    """A framework that declines all offers and records their times."""

    def __init__(self, masters: str) -> None:
        super().__init__(name="watcher", master=masters, demand=UNIT)
        self.offered_at = self.subscribed_at = 0.0
        self.gaps: list[tuple[float, float]] = []

    async def on_subscribed(self, framework_id: str) -> None:
        self.subscribed_at = time.monotonic()

    async def on_offers(self, offers: list[Offer]) -> None:
        now = time.monotonic()
        self.gaps.append((now, now - self.offered_at))
        self.offered_at = now
        await asyncio.sleep(0.02)
        await self.decline(offers, 0)

    def longest_gap_s(self, since: float) -> float:
        """Return the longest time without an offer that ended after `since`, up to now."""
        ended = [gap for at, gap in self.gaps if at > since]
        return max([*ended, time.monotonic() - self.offered_at])


@dataclass(slots=True)
class Failovers:
    """Measured failovers, in seconds.

    Attributes:
        waits: from each kill to the first offer of the next leader.
    """

    lease_s: float
    waits: list[float] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    tasks: int = 0

    def quantile(self, part: float) -> float:
        """Return the quantile of all waits."""
        ordered = sorted(self.waits)
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


@asynccontextmanager
async def several_masters(
    folder: Path, lease_s: float, most: int = 8
) -> AsyncIterator[tuple[Cluster, Watcher]]:
    """Run three masters, three members of etcd, agents, a workload and a watching framework.

    `most` is the number of tasks that each framework of the workload keeps running.
    """
    layout = Layout(masters=3, etcd=3, most=most, lease_s=lease_s, is_preloaded=False)
    cluster = Cluster(folder, layout, SEED)
    watching: asyncio.Task[None] | None = None
    try:
        await cluster.start()
        cluster.control("run")
        watcher = Watcher(cluster.fronts())
        watching = asyncio.create_task(watcher.run())
        await eventually(lambda: watcher.offered_at, PATIENCE_S, "the watcher is offered something")
        yield cluster, watcher
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        await cluster.stop()


async def kill_leader(cluster: Cluster, watcher: Watcher) -> float:
    """Kill the leader; return the seconds until another master's first offer."""
    name = await cluster.leader()
    assert name is not None
    cluster.masters[name].kill()
    killed_at = time.monotonic()

    def is_offered() -> bool:
        return watcher.offered_at > watcher.subscribed_at > killed_at

    await eventually(is_offered, PATIENCE_S, "an offer of the next leader")
    waited = watcher.offered_at - killed_at
    await asyncio.sleep(LEADS_FOR_S)
    cluster.masters[name].start()
    await cluster.whole(PATIENCE_S)
    return waited


async def measure(folder: Path, kills: int, lease_s: float, is_verbose: bool = False) -> Failovers:
    """Kill the leader so often, and check the limits."""
    result = Failovers(lease_s)
    async with several_masters(folder, lease_s) as (cluster, watcher):
        for number in range(1, kills + 1):
            result.waits.append(await kill_leader(cluster, watcher))
            if is_verbose:
                print(
                    f"failover {number:>2}: {result.waits[-1]:.2f} s to the first offer", flush=True
                )
        await watcher.stop(teardown=True)
        judge = Judge(cluster, SEED)
        result.violations = await judge.judge()
        result.tasks = judge.tasks.total()
    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.failover")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--lease", type=float, default=5.0, help="seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(
            measure(Path(folder) / "c", options.kills, options.lease, is_verbose=True)
        )
    print(
        f"{options.kills} failovers with a lease of {options.lease:g} s: first offer after "
        f"p50 {result.quantile(0.5):.2f} s, p99 {result.quantile(0.99):.2f} s, "
        f"max {max(result.waits):.2f} s; {result.tasks} tasks, {len(result.violations)} violations"
    )
    for violation in result.violations:
        print(f"    {violation}")
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())
