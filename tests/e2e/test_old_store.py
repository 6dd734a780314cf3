"""A stale copy of the master's file restored after kill -9: refused, and no task runs twice."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from croupier.sdk import Framework, Offer, Resources, Task, TaskState, TaskStatus
from tests.harness.cluster import Cluster, log_events, real_cluster
from tests.harness.eventually import eventually
from tests.harness.steady import at_work

pytestmark = pytest.mark.e2e

UNIT = Resources.parse("cpus:1;mem:64MB")
DEBUG = ("--log-level", "debug")
HAS = "cpus:4;mem:1GB;disk:1GB"
FILES = ("master.db", "master.db-wal")


class Writer(Framework):
    """A framework that launches tasks; each appends its id to one file."""

    def __init__(self, master: str, file: Path) -> None:
        super().__init__("writer", master=master, demand=UNIT)
        self.line = f"echo $CROUPIER_TASK_ID >> {file}; sleep 0.1"
        self.is_done = False
        self.subscribed = asyncio.Event()
        self.launched: set[str] = set()
        self.ended: dict[str, TaskState] = {}

    async def on_subscribed(self, framework_id: str) -> None:
        self.subscribed.set()

    async def on_offers(self, offers: list[Offer]) -> None:
        for offer in offers:
            tasks = [] if self.is_done else [Task(shell=self.line, resources=UNIT)]
            verdicts = await self.accept(offer, tasks)
            self.launched |= {verdict.task_id for verdict in verdicts if verdict.ok}

    async def on_update(self, status: TaskStatus) -> None:
        if status.state.is_terminal:
            self.ended[status.task_id] = status.state


def copy_of_the_stopped(cluster: Cluster, folder: Path) -> None:
    """Copy the database and its log while the master is stopped."""
    master = cluster.processes["master"]
    master.send_signal(signal.SIGSTOP)
    folder.mkdir()
    for name in FILES:
        shutil.copy(cluster.work_dir / name, folder / name)
    master.send_signal(signal.SIGCONT)


def put_back(folder: Path, target: Path) -> None:
    for name in FILES:
        (target / name).unlink(missing_ok=True)
        if (folder / name).exists():
            shutil.copy(folder / name, target / name)


async def ends_refusing(cluster: Cluster) -> None:
    """Check that the master exits with one line that names the remedy."""
    process = cluster.processes["master"]
    await eventually(lambda: process.poll() is not None, 20, what="the master ends")
    del cluster.processes["master"]
    said = [line for line in cluster.log("master").splitlines() if "croupier-master:" in line]
    assert process.returncode == 1
    assert "is an old copy" in said[-1]
    assert "--recover=old-store" in said[-1]


def launches_by_epoch(cluster: Cluster) -> Counter[int]:
    """Return how many tasks each master launched."""
    found: Counter[int] = Counter()
    epoch = 0
    for event in log_events(cluster.log("master")):
        if event["event"] == "term_began":
            epoch = event["epoch"]
        found[epoch] += event["event"] == "task_moved" and event["state"] == "STAGING"
    return found


async def test_an_old_copy_is_refused_or_accepted_by_flag_and_no_task_runs_twice(
    tmp_path: Path,
) -> None:
    ran = tmp_path / "ran"
    # Placements are lines at debug.
    async with real_cluster(tmp_path, HAS, HAS, flags=DEBUG) as cluster:
        async with at_work(Writer(cluster.master, ran)) as writer:
            await eventually(lambda: len(writer.ended) > 4)
            # The epoch is the same in the copy: only the number of commits shows that it is stale.
            copy_of_the_stopped(cluster, tmp_path / "copy")
            known = len(writer.ended)
            await eventually(lambda: len(writer.ended) > known + 6)
            cluster.kill("master")
            put_back(tmp_path / "copy", tmp_path)
            cluster.begin_master(*DEBUG)
            await ends_refusing(cluster)
            launches = launches_by_epoch(cluster)
            assert launches[1]
            assert not launches[2]
            before = len(writer.launched)
            await cluster.start_master("--recover", "old-store")
            await eventually(lambda: len(writer.launched) > before + 3, 30)
            writer.is_done = True
            await eventually(lambda: writer.ended.keys() >= writer.launched, 30)
        assert max(Counter(ran.read_text().split()).values()) == 1
        events = {event["event"] for event in log_events(cluster.log("master"))}
        assert "old_store_accepted" in events
