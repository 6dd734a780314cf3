"""Masters that are killed: what they answered took effect once, and the next one leads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from croupier.sdk import Framework, Offer, Resources, Task, TaskStatus, TaskVerdict
from tests.chaos.real.checker import check_tasks, unsettled
from tests.chaos.real.cluster import Cluster, Layout
from tests.chaos.real.journal import Answered, Asked, Begun, Entry, KillAnswered, KillAsked
from tests.chaos.real.judge import Judge
from tests.chaos.real.ledger import Ledger, read_ledger
from tests.chaos.real.work import ENDLESS_S, Work
from tests.chaos.real.workload import entry_of
from tests.harness.eventually import eventually
from tests.harness.steady import at_work

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

PATIENCE_S = 150.0
RUNNING, ACCEPTS, SUBMITTED = 150, 50, 300
# Tasks of one ACCEPT while the cluster is filled.
AT_ONCE = 25


class Journaled(Framework):
    """A framework that notes what it asked for and what it was told; `entries` is the journal."""

    unit = Resources.parse("cpus:1;mem:1MB")

    def __init__(self, master: str, ledger: Path, demand: Resources | None = None) -> None:
        super().__init__(name="journaled", master=master, demand=demand)
        self.ledger = ledger
        self.entries: list[Entry] = [Begun(0)]
        self.running: set[str] = set()
        self.subscribed = asyncio.Event()

    async def on_subscribed(self, framework_id: str) -> None:
        self.subscribed.set()

    async def on_update(self, status: TaskStatus) -> None:
        self.entries.append(entry_of(status, handled=True))
        if status.state.name == "RUNNING":
            self.running.add(status.task_id)

    def make_tasks(self, works: Sequence[Work]) -> list[Task]:
        """Return tasks that are about to be launched or submitted."""
        self.entries.append(Asked(tuple(work.task_id for work in works)))
        ledger = str(self.ledger)
        return [Task(w.command(ledger), resources=self.unit, task_id=w.task_id) for w in works]

    def note(self, verdicts: Sequence[TaskVerdict]) -> None:
        """Note the answers."""
        for verdict in verdicts:
            error = "" if verdict.error is None else str(verdict.error)
            self.entries.append(Answered(verdict.task_id, error, time.time()))


def endless(task_id: str) -> Work:
    """Return the work of a task that runs until it is killed."""
    return Work(task_id, ENDLESS_S, 0, 0.0)


def brief(task_id: str) -> Work:
    """Return the work of a task that ends at once."""
    return Work(task_id, 0.0, 0)


class Loader(Journaled):
    """Launches tasks in large calls, and after `go_on` in calls of one task each."""

    def __init__(self, master: str, ledger: Path) -> None:
        super().__init__(master, ledger, demand=self.unit)
        self.offered_at = 0.0
        self.asked = 0
        self.go_on = False
        self.last_answered = asyncio.Event()

    async def on_offers(self, offers: list[Offer]) -> None:
        self.offered_at = time.monotonic()
        for offer in offers:
            left = RUNNING - self.asked
            if left > 0:
                await self._launch(offer, min(left, AT_ONCE, offer.resources["cpus"] // 1000))
            elif self.go_on and self.asked < RUNNING + ACCEPTS:
                await self._launch(offer, 1)
                if self.asked == RUNNING + ACCEPTS:
                    self.last_answered.set()
            else:
                await self.decline(offer, 0.2)

    async def _launch(self, offer: Offer, number: int) -> None:
        tasks = self.make_tasks([endless(f"t-{self.asked + index}") for index in range(number)])
        self.asked += number
        self.note(await self.accept(offer, tasks, refuse_s=0))

    async def end_all(self) -> None:
        """Kill every task that has not ended."""
        for task_id in unsettled(self.entries):
            self.entries.append(KillAsked(task_id))
            await self.kill(task_id, grace_s=1)
            self.entries.append(KillAnswered(task_id, ""))


@asynccontextmanager
async def one_master(folder: Path, has: str) -> AsyncIterator[Cluster]:
    cluster = Cluster(folder, Layout(agents=1, frameworks=0, has=has, is_preloaded=False), seed=0)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()


def runs_of(ledger: Ledger) -> list[int]:
    """Return how often each task started."""
    return [len(pids) for pids in ledger.starts.values()]


async def test_every_answered_accept_takes_effect_once(tmp_path: Path) -> None:
    total, path = RUNNING + ACCEPTS, tmp_path / "c" / "ran"
    async with (
        one_master(tmp_path / "c", f"cpus:{total + 10};mem:64GB;disk:1GB") as cluster,
        at_work(Loader(cluster.fronts(), path)) as loader,
    ):
        await eventually(lambda: len(loader.running) == RUNNING, PATIENCE_S, "tasks run")
        loader.go_on = True
        await asyncio.wait_for(loader.last_answered.wait(), PATIENCE_S)

        (master,) = cluster.masters.values()
        master.kill()
        master.start()

        started = time.monotonic()
        await eventually(lambda: loader.offered_at > started, PATIENCE_S, "an offer")
        await eventually(lambda: len(loader.running) == total, PATIENCE_S, "all are running")
        await loader.end_all()
        await eventually(lambda: not unsettled(loader.entries), PATIENCE_S, "all have ended")
        ran = read_ledger(path)
        assert check_tasks(endless, {"loader": loader.entries}, ran) == []
        assert runs_of(ran) == [1] * total


async def test_every_submitted_task_runs_once(tmp_path: Path) -> None:
    path = tmp_path / "c" / "ran"
    async with (
        one_master(tmp_path / "c", "cpus:16;mem:64GB;disk:64GB") as cluster,
        at_work(Journaled(cluster.fronts(), path)) as submitter,
    ):
        submitter.unit = Resources.parse("cpus:1;mem:1MB;disk:32MB")
        tasks = submitter.make_tasks([brief(f"t-{number}") for number in range(SUBMITTED)])
        submitter.note(await submitter.submit(tasks))

        (master,) = cluster.masters.values()
        master.kill()
        # Most were queued only.
        assert not path.exists() or len(read_ledger(path).starts) < SUBMITTED
        master.start()

        await eventually(lambda: not unsettled(submitter.entries), PATIENCE_S, "all have ended")
        ran = read_ledger(path)
        assert check_tasks(brief, {"submitter": submitter.entries}, ran) == []
        assert runs_of(ran) == [1] * SUBMITTED


SEED = 7
# Tasks that each framework keeps running.
MOST = 4
# etcd may need 2 s to elect a leader among its own members; a lease must outlast that.
LEASE_S, PATIENT_LEASE_S = 5.0, 10.0
# Offers may be this far apart on a loaded machine without a fault.
HICCUP_S = 20.0
# After it the loss of a member of etcd shows, if it does.
NOTICED_S = 1.5
# A killed master is started again once another leads, as a supervisor would.
LEADS_FOR_S = 1.0
FAULT_S = 60.0


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
        await eventually(lambda: watcher.offered_at, FAULT_S, "the watcher is offered something")
        yield cluster, watcher
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        await cluster.stop()


async def kill_leader(cluster: Cluster, watcher: Watcher) -> None:
    """Kill the leader, wait for another master's first offer, and start it again."""
    name = await cluster.leader()
    assert name is not None
    cluster.masters[name].kill()
    killed_at = time.monotonic()

    def is_offered() -> bool:
        return watcher.offered_at > watcher.subscribed_at > killed_at

    await eventually(is_offered, FAULT_S, "an offer of the next leader")
    await asyncio.sleep(LEADS_FOR_S)
    cluster.masters[name].start()
    await cluster.whole(FAULT_S)


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

        await eventually(no_master_leads, FAULT_S, "no master leads")
        await eventually(
            lambda: len(read_ledger(cluster.folder / "ran").ends) > ended, FAULT_S, "tasks end"
        )
        # Long enough for ACCEPTs if there were any.
        await asyncio.sleep(1)
        assert accepted(judge, lost_at + PATIENT_LEASE_S, time.time()) == 0

        cluster.etcd["etcd2"].start()
        cluster.etcd["etcd3"].start()
        back_at = time.monotonic()
        await eventually(lambda: watcher.offered_at > back_at, 60, "offers again")
        await watcher.stop(teardown=True)
        assert await judge.judge() == []


async def test_leaders_are_cut_off_from_etcd_and_killed(tmp_path: Path) -> None:
    """Each steps down before another leads; no decision is made twice, and nothing is lost."""
    async with several_masters(tmp_path / "cluster", LEASE_S) as (cluster, watcher):
        leader = await cluster.leader()
        assert leader is not None
        for member in cluster.etcd:
            cluster.proxies[member].swallow(leader)

        async def another_leads() -> bool:
            return await cluster.leader() not in (None, leader)

        await eventually(another_leads, FAULT_S, "another leads")
        for member in cluster.etcd:
            cluster.proxies[member].heal(leader)
        await kill_leader(cluster, watcher)
        await watcher.stop(teardown=True)
        assert await Judge(cluster, SEED).judge() == []
