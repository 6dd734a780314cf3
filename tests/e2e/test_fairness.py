"""Fair shares, live: real daemons, real processes, frameworks that register in either order."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.harness.cluster import Cluster, real_cluster
from tests.harness.eventually import eventually
from tests.harness.steady import Steady, at_work

pytestmark = pytest.mark.e2e

PAPER = ("cpus:9;mem:18GB;disk:1GB", {"A": "cpus:1;mem:4GB", "B": "cpus:3;mem:1GB"})


async def wait_for_counts(
    cluster: Cluster, wanted: dict[str, int], shares: dict[str, float]
) -> None:
    """Wait until most samples have these task counts and shares; tasks start and end meanwhile."""

    async def are_usual() -> bool:
        seen: Counter[bool] = Counter()
        for _ in range(50):
            running = {name: view.tasks for name, view in (await cluster.frameworks()).items()}
            seen[running == wanted] += 1
            await asyncio.sleep(0.01)
        return seen[True] >= 30

    await eventually(are_usual, 30, what=f"{wanted} run")

    async def are_shares() -> bool:
        return await cluster.shares() == shares

    await eventually(are_shares, 10, what=f"shares are {shares}")


async def test_a_late_framework_reaches_its_share(tmp_path: Path) -> None:
    """The first framework uses everything; as its tasks end, the second reaches its share."""
    has, units = PAPER
    async with real_cluster(tmp_path, has) as cluster:
        for order in ("AB", "BA"):
            async with AsyncExitStack() as stack:
                for name in order:
                    steady = Steady(name, cluster.master, units[name], seconds=0.4)
                    await stack.enter_async_context(at_work(steady))
                    await eventually(lambda: steady.launched > 0, 15, what=f"{name} runs tasks")  # noqa: B023
                await wait_for_counts(cluster, {"A": 3, "B": 2}, {"A": 0.667, "B": 0.667})
            await eventually(cluster.conserved, 15, "the next ones find all free")


async def test_a_slow_framework_and_a_quick_one_do_not_starve_each_other(tmp_path: Path) -> None:
    """Neither declares a demand, so each is offered all free resources of the one agent."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            real_cluster(tmp_path, "cpus:4;mem:4GB;disk:1GB", "cpus:4;mem:4GB;disk:1GB")
        )
        unit = "cpus:1;mem:512MB"
        slow = Steady("slow", cluster.master, unit, 0.3, think_s=0.5, declares=False)
        quick = Steady("quick", cluster.master, unit, 0.3, declares=False)
        await stack.enter_async_context(at_work(quick))
        await stack.enter_async_context(at_work(slow))
        began = time.monotonic()

        async def both_work() -> bool:
            return quick.launched > 30 and slow.launched > 10

        await eventually(both_work, 20, what="both run their tasks")
        assert time.monotonic() - began < 20
