"""Groups on real agents: they start together, share a directory, and end together."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from croupier.sdk import Framework, Offer, Reason, Resources, Task, TaskState, TaskStatus
from tests.harness.cluster import Cluster, processes_with, real_cluster
from tests.harness.eventually import eventually
from tests.harness.steady import at_work

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

UNIT = Resources.parse("cpus:1;mem:32MB")
# Seconds of a sleep that identify these tasks among all processes.
ENDLESS = "31622"
HAS = "cpus:4;mem:1GB"


class Grouped(Framework):
    """Launches one group on its first offer, or only submits."""

    def __init__(self, master: str, *launched: Task) -> None:
        super().__init__(name="grouped", master=master, demand=UNIT if launched else None)
        self.launched = list(launched)
        self.states: dict[str, TaskStatus] = {}
        self.subscribed = asyncio.Event()

    async def on_subscribed(self, framework_id: str) -> None:
        self.subscribed.set()

    async def on_offers(self, offers: list[Offer]) -> None:
        tasks, self.launched = self.launched, []
        verdicts = await self.launch_group(offers[0], tasks, "g")
        assert [verdict.error for verdict in verdicts] == [None] * len(tasks)

    async def on_update(self, status: TaskStatus) -> None:
        self.states[status.task_id] = status

    def all_are(self, state: TaskState, *task_ids: str) -> bool:
        found = [self.states[each].state for each in task_ids if each in self.states]
        return found == [state] * len(task_ids)


def shell(task_id: str, line: str, part: str = "member") -> Task:
    return Task(shell=line, resources=UNIT, task_id=task_id, part=part, grace_s=1)


def endless(task_id: str, part: str = "member") -> Task:
    return shell(task_id, f"exec sleep {ENDLESS}", part)


def directories(cluster: Cluster) -> list[Path]:
    return list((cluster.work_dir / "host0/groups").glob("*/*/*"))


async def test_a_group_shares_a_directory_and_ends_with_its_members(tmp_path: Path) -> None:
    write = 'echo hello > "$CROUPIER_GROUP_DIR/said"'
    read = 'until [ -e "$CROUPIER_GROUP_DIR/said" ]; do sleep 0.1; done'
    tasks = (shell("w", write), shell("r", read), endless("s", "sidecar"))
    async with (
        real_cluster(tmp_path, HAS) as cluster,
        at_work(Grouped(cluster.master, *tasks)) as grouped,
    ):
        await eventually(lambda: grouped.all_are(TaskState.FINISHED, "w", "r"), what="both end")
        await eventually(lambda: grouped.all_are(TaskState.KILLED, "s"), what="the sidecar ends")
        assert grouped.states["s"].reason is Reason.GROUP_ENDED
        assert "of its group has ended as FINISHED" in grouped.states["s"].message
        await eventually(lambda: not directories(cluster), what="the directory is removed")


async def test_one_that_fails_ends_all_also_under_the_next_agent(tmp_path: Path) -> None:
    flag = tmp_path / "fail"
    fails = shell("f", f"until [ -e {flag} ]; do sleep 0.1; done; exit 3")
    async with (
        real_cluster(tmp_path, HAS) as cluster,
        at_work(Grouped(cluster.master)) as grouped,
    ):
        verdicts = await grouped.submit([fails, endless("m"), endless("s", "sidecar")], group="g")
        assert not any(verdict.error for verdict in verdicts)
        await eventually(lambda: grouped.all_are(TaskState.RUNNING, "f", "m", "s"), what="all run")
        (shared,) = directories(cluster)

        cluster.kill("host0")
        await cluster.start_agent("host0", HAS)
        assert directories(cluster) == [shared]
        cluster.kill("master")
        await cluster.start_master()
        flag.touch()
        await eventually(lambda: grouped.all_are(TaskState.FAILED, "f"), 60, what="it fails")
        await eventually(lambda: grouped.all_are(TaskState.KILLED, "m", "s"), what="the rest ends")
        assert grouped.states["m"].reason is Reason.GROUP_ENDED
        assert "member f of its group has ended as FAILED" in grouped.states["m"].message
        assert not processes_with(f"sleep\0{ENDLESS}")


async def test_a_bad_task_leaves_nothing(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, HAS) as cluster,
        at_work(Grouped(cluster.master)) as grouped,
    ):
        large = Task(["true"], resources=Resources.parse("cpus:8"), task_id="large")
        await grouped.submit([endless("a"), large], group="g")
        assert not grouped.states
        verdicts = await grouped.submit([endless("b"), endless("a")], group="h")
        assert "group h is refused: task a" in str(verdicts[0].error)
        withdrawn = await grouped.withdraw(["large"])
        assert withdrawn[0].error is None
        await eventually(lambda: grouped.all_are(TaskState.KILLED, "a", "large"), what="both end")
        assert await cluster.conserved()
