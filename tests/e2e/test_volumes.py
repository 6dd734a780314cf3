"""Volumes on real agents: they stay over tasks, agents and masters, until they are released."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from croupier.sdk import (
    Framework,
    Hold,
    Offer,
    Resources,
    Task,
    TaskState,
    TaskStatus,
    VolumeMount,
)
from tests.harness.cluster import real_cluster
from tests.harness.debian import program
from tests.harness.eventually import eventually
from tests.harness.steady import at_work

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

UNIT = Resources.parse("cpus:1;mem:32MB")
HAS = "cpus:4;mem:1GB;disk:1GB"
VOLUME = Hold(Resources.parse("disk:100MB"), volume=True, id="data")


class Keeper(Framework):
    """Makes a volume of its first offer, and then submits."""

    def __init__(self, master: str) -> None:
        super().__init__(name="keeper", master=master)
        self.states: dict[str, TaskStatus] = {}
        self.subscribed = asyncio.Event()
        self.made = asyncio.Event()

    async def on_subscribed(self, framework_id: str) -> None:
        self.subscribed.set()

    async def on_offers(self, offers: list[Offer]) -> None:
        if self.made.is_set():
            await self.decline(offers, 60)
            return
        verdict = await self.hold(offers[0], VOLUME)
        assert verdict.operations[0].ok
        self.made.set()

    async def on_update(self, status: TaskStatus) -> None:
        self.states[status.task_id] = status

    async def ran(self, task_id: str, line: str, *, is_boxed: bool = False) -> None:
        """Run a shell line in a task with the volume, which must succeed; boxed, to read it."""
        mount = VolumeMount("data", "data", read_only=is_boxed)
        task = Task(
            shell=line, resources=UNIT, task_id=task_id, volumes=[mount], namespaces=is_boxed
        )
        verdicts = await self.submit([task])
        assert verdicts[0].error is None

        def has_ended() -> bool:
            return task_id in self.states and self.states[task_id].state.is_terminal

        await eventually(has_ended, 30, what=f"{task_id} ends")
        assert self.states[task_id].state is TaskState.FINISHED, self.states[task_id]


def volumes(work_dir: Path) -> list[Path]:
    return [
        path for host in ("host0", "host1") for path in (work_dir / host).glob("volumes/*/data/*")
    ]


async def test_a_volume_stays_until_it_is_released(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, HAS, HAS) as cluster,
        at_work(Keeper(cluster.master)) as keeper,
    ):
        await asyncio.wait_for(keeper.made.wait(), 20)
        await keeper.ran("writes", "echo hello > data/said")
        (path,) = volumes(cluster.work_dir)
        assert (path / "said").read_text() == "hello\n"
        await keeper.ran("reads", "grep hello data/said && echo more >> data/said")

        cluster.kill("host0")
        cluster.kill("host1")
        cluster.kill("master")
        await cluster.start_master()
        for host in ("host0", "host1"):
            await cluster.start_agent(host, HAS)
        await keeper.ran("reads-again", "grep more data/said")

        (verdict,) = await keeper.release("data")
        assert verdict.error is None
        await eventually(lambda: not volumes(cluster.work_dir), what="the directory is removed")
        mount = VolumeMount("data", "data")
        late = Task(["true"], resources=UNIT, task_id="late", volumes=[mount])
        refused = await keeper.submit([late])
        assert "there is no volume data for it" in str(refused[0].error)


@pytest.mark.skipif(os.geteuid() != 0, reason="boxes of other users need more of the machine")
async def test_a_task_in_a_box_reads_a_volume_that_it_cannot_write(tmp_path: Path) -> None:
    async with real_cluster(tmp_path) as cluster:
        cluster.agent_flags = ("--isolation", "process,namespaces")
        path = os.pathsep.join([str(program("bwrap").parent), os.environ["PATH"]])
        cluster.environment = {**os.environ, "PATH": path}
        await cluster.start_agent("host0", HAS)
        async with at_work(Keeper(cluster.master)) as keeper:
            await asyncio.wait_for(keeper.made.wait(), 20)
            await keeper.ran("writes", "echo hello > data/said")
            line = "grep hello data/said && ! touch data/more"
            await keeper.ran("reads", line, is_boxed=True)
            (path_of,) = volumes(cluster.work_dir)
            assert [each.name for each in path_of.iterdir()] == ["said"]
