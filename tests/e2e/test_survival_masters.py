"""Three masters and three etcd members, some of them killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from croupier.sdk import Framework, Offer, Resources
from tests.chaos.real.checker import Violation
from tests.chaos.real.cluster import Cluster, Layout
from tests.chaos.real.journal import Answered
from tests.chaos.real.judge import Judge
from tests.chaos.real.ledger import read_ledger
from tests.harness.eventually import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SEED = 7
# Tasks that each framework keeps running.
MOST = 4
LEASE_S = 2.0
# etcd may need 2 s to elect a leader among its own members; a lease must outlast that.
PATIENT_LEASE_S = 5.0
# The target is the lease and 2 s on an idle machine; tests run beside others.
FAILOVER_S = LEASE_S + 12.0
# Offers may be this far apart on a loaded machine without a fault.
HICCUP_S = 4.0
# After it the loss of a member of etcd shows, if it does.
NOTICED_S = 1.5
# A killed master is started again once another leads, as a supervisor would.
LEADS_FOR_S = 1.0
PATIENCE_S = 60.0


class Watcher(Framework):
    """A framework that declines all offers and records the times of the last ones."""

    def __init__(self, masters: str) -> None:
        demand = Resources.parse("cpus:1;mem:64MB")
        super().__init__(name="watcher", master=masters, demand=demand)
        self.offered_at = self.subscribed_at = 0.0

    async def on_subscribed(self, framework_id: str) -> None:
        self.subscribed_at = time.monotonic()

    async def on_offers(self, offers: list[Offer]) -> None:
        self.offered_at = time.monotonic()
        await asyncio.sleep(0.02)
        await self.decline(offers, 0)


@asynccontextmanager
async def several_masters(folder: Path, lease_s: float) -> AsyncIterator[tuple[Cluster, Watcher]]:
    """Run three masters, three members of etcd, agents, a workload and a watching framework."""
    layout = Layout(masters=3, etcd=3, most=MOST, lease_s=lease_s, is_preloaded=False)
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


def accepted(judge: Judge, since_s: float, until_s: float) -> int:
    """Return how many launches were answered ok in that period of wall time."""
    return sum(
        isinstance(entry, Answered) and not entry.error and since_s < entry.time_s < until_s
        for entries in judge.entries().values()
        for entry in entries
    )


async def goes_on(watcher: Watcher) -> None:
    """Check that there are offers during the next seconds."""
    since = time.monotonic() + NOTICED_S
    await eventually(lambda: watcher.offered_at > since, NOTICED_S + HICCUP_S, "offers go on")


async def judged(cluster: Cluster, judge: Judge) -> list[Violation]:
    cluster.control("drain")
    return await judge.judge()


async def test_etcd_loses_a_member_and_then_its_quorum(tmp_path: Path) -> None:
    """Without one member work continues; without two no master decides until one is back."""
    async with several_masters(tmp_path / "cluster", PATIENT_LEASE_S) as (cluster, watcher):
        judge = Judge(cluster, SEED)
        leader = await cluster.leader()
        for change in (cluster.etcd["etcd1"].kill, cluster.etcd["etcd1"].start):
            change()
            await goes_on(watcher)
        assert await cluster.leader() == leader

        cluster.etcd["etcd2"].kill()
        cluster.etcd["etcd3"].kill()
        lost_at = time.time()
        ended = len(read_ledger(cluster.folder / "ran").ends)

        async def no_master_leads() -> bool:
            return await cluster.leader() is None

        await eventually(no_master_leads, PATIENT_LEASE_S + 5, "no master leads")
        await eventually(
            lambda: len(read_ledger(cluster.folder / "ran").ends) > ended, 10, "tasks end"
        )
        # Long enough for ACCEPTs if there were any.
        await asyncio.sleep(1)
        assert accepted(judge, lost_at + PATIENT_LEASE_S, time.time()) == 0

        cluster.etcd["etcd2"].start()
        cluster.etcd["etcd3"].start()
        back_at = time.monotonic()
        await eventually(lambda: watcher.offered_at > back_at, 60, "offers again")
        await watcher.stop(teardown=True)
        assert await judged(cluster, judge) == []


async def test_leaders_are_cut_off_from_etcd_and_killed(tmp_path: Path) -> None:
    """Each steps down before another leads; no decision is made twice, and nothing is lost."""
    async with several_masters(tmp_path / "cluster", LEASE_S) as (cluster, watcher):
        leader = await cluster.leader()
        assert leader is not None
        for member in cluster.etcd:
            cluster.proxies[member].swallow(leader)

        async def another_leads() -> bool:
            return await cluster.leader() not in (None, leader)

        await eventually(another_leads, FAILOVER_S, "another leads")
        for member in cluster.etcd:
            cluster.proxies[member].heal(leader)
        waits = [await kill_leader(cluster, watcher) for _ in range(2)]
        assert max(waits) < FAILOVER_S
        await watcher.stop(teardown=True)
        assert await judged(cluster, Judge(cluster, SEED)) == []
