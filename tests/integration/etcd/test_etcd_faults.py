"""Faults of etcd's members: acknowledged commits are durable, and two masters never lead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from croupier.master.core.records import AgentRecord, MasterRecord
from croupier.master.etcd.election import EtcdElection
from croupier.master.etcd.upkeep import ETCD
from croupier.master.store.etcd import EtcdStore
from croupier.model.errors import CroupierError, FailedOver, Unavailable
from croupier.model.ids import AgentId
from croupier.process.metric_families import FamilyCollector
from tests.harness.etcd import running_etcd
from tests.harness.eventually import eventually
from tests.integration.etcd.conftest import Masters

LEASE_S = 5.0
# While a member is down or frozen, a leader may ask two others for nothing, a second each, and raft
# may elect for two. A busy machine needs as long again, and the lease must outlast that.
LONG_LEASE_S = 20.0
FILL_S = 30.0


class Writer:
    """A task that commits one record after another.

    Attributes:
        kept: the number of acknowledged commits.
    """

    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        self._is_stopped = False
        self._committing = asyncio.create_task(self._commit())
        self.kept = 0

    async def _commit(self) -> None:
        while not self._is_stopped:
            await self._store.commit([AgentRecord(AgentId(f"A{self.kept}"), "h")])
            self.kept += 1
            await asyncio.sleep(0.01)

    async def goes_on(self) -> None:
        """Wait for further commits.

        Raises:
            CroupierError: if one failed.
        """
        kept = self.kept
        await eventually(lambda: self._committing.done() or self.kept > kept + 5, 30)
        if self._committing.done():
            await self._committing

    async def stop(self) -> None:
        """End after the present commit.

        A commit that is cancelled may still reach etcd. Only another leadership may load then.

        Raises:
            CroupierError: if a commit failed.
        """
        self._is_stopped = True
        await self._committing

    async def close(self) -> None:
        """End at once."""
        self._committing.cancel()
        await asyncio.gather(self._committing, return_exceptions=True)


@asynccontextmanager
async def writing(store: EtcdStore) -> AsyncIterator[Writer]:
    writer = Writer(store)
    try:
        await writer.goes_on()
        yield writer
        await writer.stop()
    finally:
        await writer.close()


async def holds_all(store: EtcdStore, writer: Writer) -> bool:
    known = (await store.load()).agents
    return all(AgentId(f"A{number}") in known for number in range(writer.kept))


async def test_leadership_survives_the_restart_of_each_member(three: Masters) -> None:
    etcd = three.etcd
    election, store = await three.leading(lease_s=LONG_LEASE_S)
    async with writing(store) as writer:
        for number in range(3):
            # One of the members leads raft; the others elect another.
            etcd.kill(number)
            await writer.goes_on()
            etcd.launch(number)
            await asyncio.to_thread(etcd.wait_ready)
    assert election.is_won
    assert await holds_all(store, writer)


async def test_a_frozen_member_is_skipped(three: Masters) -> None:
    etcd = three.etcd
    election, store = await three.leading(lease_s=LONG_LEASE_S)
    async with writing(store) as writer:
        for number in range(3):
            etcd.freeze(number)
            await writer.goes_on()
            etcd.thaw(number)
            await writer.goes_on()
    assert election.is_won
    assert await holds_all(store, writer)


async def test_a_leader_without_a_quorum_steps_down_and_acknowledges_nothing(
    three: Masters,
) -> None:
    etcd = three.etcd
    election, store = await three.leading("a:1", lease_s=LEASE_S)
    await store.commit([MasterRecord("c", 1)])
    follower = three.election("b:1", lease_s=LEASE_S)
    following = asyncio.create_task(follower.win())
    await eventually(lambda: follower.leader == "a:1")

    etcd.kill(0, 1)
    committing = asyncio.create_task(store.commit([MasterRecord("c", 99)]))
    await asyncio.wait_for(election.lost(), 30)
    assert not election.is_won
    with pytest.raises((Unavailable, FailedOver)):
        await asyncio.wait_for(committing, 30)
    with pytest.raises(Unavailable):
        await store.commit([MasterRecord("c", 100)])
    assert not following.done(), "without a quorum no master leads"

    etcd.launch(0)
    etcd.launch(1)
    leading = await first_to_lead(election, follower, following)
    registry = await EtcdStore(three.client(), three.prefix, leading).load()
    # The commit that was not acknowledged may be durable or not.
    assert registry.master in (MasterRecord("c", 1), MasterRecord("c", 99))


async def test_metrics_show_failing_members(three: Masters) -> None:
    etcd, client = three.etcd, three.client()
    registry = CollectorRegistry()
    registry.register(FamilyCollector(ETCD, lambda: client))

    def metric(name: str, **labels: str) -> float:
        value = registry.get_sample_value(f"croupier_etcd_{name}", labels)
        assert value is not None
        return value

    async def probed_until(failing: int) -> None:
        # Members fail while they elect a leader; a connection waits before it is made again.
        async with asyncio.timeout(30):
            await client.probe(b"/croupier/leader")
            while metric("members_failing") != failing:
                await asyncio.sleep(0.1)
                await client.probe(b"/croupier/leader")

    with capture_logs() as logs:
        election = three.election("a:1", LEASE_S, client)
        await election.win()
        await probed_until(0)
        assert metric("requests_total", outcome="answered") > 0
        assert metric("silent_seconds") < LEASE_S

        # No call needs this member, so only a probe shows that it fails, and that it is back.
        idle = (client._current + 1) % 3
        etcd.kill(idle)
        await probed_until(1)
        etcd.launch(idle)
        await asyncio.to_thread(etcd.wait_ready)
        await probed_until(0)

        etcd.kill(0, 1)
        standing = asyncio.create_task(stand_again(election))
        await eventually(lambda: metric("members_failing") == 3, 30)
        await eventually(lambda: metric("silent_seconds") > LEASE_S, 30)
        assert metric("requests_total", outcome="failed") >= 3
        assert [log["members"] for log in logs if log["event"] == "etcd_unavailable"][:1] == [3]

        etcd.launch(0)
        etcd.launch(1)
        await asyncio.wait_for(standing, 60)
        assert metric("members_failing") < 3
        assert metric("silent_seconds") < LEASE_S


async def stand_again(election: EtcdElection) -> None:
    await election.lost()
    await election.win()


async def first_to_lead(
    old: EtcdElection, follower: EtcdElection, following: asyncio.Task[None]
) -> EtcdElection:
    again = asyncio.create_task(old.win())
    await asyncio.wait([again, following], return_when=asyncio.FIRST_COMPLETED, timeout=30)
    leading = [each for each in (old, follower) if each.is_won]
    for task in (again, following):
        task.cancel()
    await asyncio.gather(again, following, return_exceptions=True)
    (one,) = leading
    return one


async def test_delayed_writes_of_a_deposed_leader_have_no_effect(three: Masters) -> None:
    etcd = three.etcd
    old, store = await three.leading("a:1", lease_s=LEASE_S)
    await store.commit([MasterRecord("c", 1)])
    etcd.freeze(0, 1, 2)
    committing = asyncio.create_task(store.commit([MasterRecord("c", 99)]))
    await asyncio.wait_for(old.lost(), 20)
    with pytest.raises(CroupierError):
        await asyncio.wait_for(committing, 20)
    etcd.thaw(0, 1, 2)
    await asyncio.wait_for(old.win(), 20)
    again = EtcdStore(three.client(), three.prefix, old)
    known = (await again.load()).master
    await again.commit([MasterRecord("c", 2)])
    assert known in (MasterRecord("c", 1), MasterRecord("c", 99))
    assert (await again.load()).master == MasterRecord("c", 2)


async def fill(store: EtcdStore) -> None:
    """Commit until etcd refuses: it checks its quota only ten times a second."""
    async with asyncio.timeout(FILL_S):
        for number in count():
            await store.commit([AgentRecord(AgentId("A"), "h" * 30_000 + str(number))])


async def test_the_master_waits_while_etcd_is_full(tmp_path: Path) -> None:
    quota = ["--quota-backend-bytes=1000000"]
    with running_etcd(tmp_path, flags=quota) as etcd:
        async with AsyncExitStack() as stack:
            masters = Masters(etcd, "croupier", stack)
            election, store = await masters.leading()
            with pytest.raises(Unavailable, match="space exceeded: compact and defragment"):
                await fill(store)
            await election.resign()
            waiting = asyncio.create_task(election.win())
            with capture_logs() as logs:
                await eventually(lambda: any(log["event"] == "election_waits" for log in logs))
            assert "space exceeded" in next(log["error"] for log in logs if "error" in log)
            await asyncio.to_thread(etcd.make_room)
            await asyncio.wait_for(waiting, 30)
            again = EtcdStore(masters.client(), "croupier", election)
            assert AgentId("A") in (await again.load()).agents


async def test_a_thawed_leader_knows_at_once_that_its_lease_is_over(three: Masters) -> None:
    """A master was frozen for longer than its lease, and no timer has fired yet."""

    class Late:
        ahead_s = 0.0

        def now(self) -> float:
            return time.monotonic() + self.ahead_s

        def wall_ms(self) -> int:
            return 0

    clock = Late()
    client = three.client()
    election = EtcdElection(client, three.prefix, "a:1", LEASE_S, clock)
    await election.win()
    store = EtcdStore(client, three.prefix, election)
    await store.load()
    clock.ahead_s = LEASE_S
    assert not election.is_won
    with pytest.raises(Unavailable):
        await store.commit([MasterRecord("c", 1)])
    await election.resign()
