"""Named devices on a real agent: tasks share one, and keep it while the agent restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from croupier.sdk import DeviceRequest, Framework, Resources, Task, TaskState, TaskStatus
from tests.harness.cluster import Cluster, real_cluster
from tests.harness.eventually import eventually
from tests.harness.steady import at_work

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

HAS = "cpus:4;mem:1GB;disk:1GB"
DEVICES = """
[[device]]
id = "GPU-a"
type = "small"
memory = "8GB"
slots = 2

[[device]]
id = "GPU-b"
type = "large"
memory = "80GB"
"""


class Submitter(Framework):
    """Submits tasks that tell their devices, and end when a file is there."""

    def __init__(self, master: str, directory: Path) -> None:
        super().__init__(name="submitter", master=master)
        self.states: dict[str, TaskState] = {}
        self.subscribed = asyncio.Event()
        self.directory = directory

    async def on_subscribed(self, framework_id: str) -> None:
        self.subscribed.set()

    async def on_update(self, status: TaskStatus) -> None:
        self.states[status.task_id] = status.state

    async def add(self, task_id: str, gpus: str, what: str = "") -> None:
        """Submit a task and wait until it has told its devices."""
        told = self.directory / task_id
        line = (
            "echo $CUDA_VISIBLE_DEVICES $CROUPIER_DEVICE_PARTS $CROUPIER_DEVICE_MEMORY_MIB"
            f" > {told}.new; mv {told}.new {told};"
            f" until [ -e {self.directory}/end ]; do sleep 0.1; done"
        )
        unit = Resources.parse(f"cpus:0.5;mem:32MB;gpus:{gpus}")
        task = Task(
            shell=line,
            resources=unit,
            task_id=task_id,
            # The devices that the master chose come after what a task says of itself.
            env={"CUDA_VISIBLE_DEVICES": "mine"},
            devices=DeviceRequest(type=what) if what or "." in gpus else None,
        )
        (verdict,) = await self.submit([task])
        assert verdict.error is None

    async def told(self, task_id: str) -> str:
        path = self.directory / task_id
        await eventually(path.exists, 30, what=f"{task_id} tells its devices")
        return path.read_text().strip()


async def uses(cluster: Cluster) -> list[str]:
    (agent,) = await cluster.agents()
    return sorted(f"{use.task_id} {use.milli} of {use.device_id}" for use in agent.device_uses)


async def test_tasks_share_a_device_and_keep_it(tmp_path: Path) -> None:
    (tmp_path / "devices.toml").write_text(DEVICES)
    flags = ("--devices", str(tmp_path / "devices.toml"))
    async with real_cluster(tmp_path) as cluster:
        await cluster.start_agent("host0", HAS, *flags)
        async with at_work(Submitter(cluster.master, tmp_path)) as framework:
            await asyncio.wait_for(framework.subscribed.wait(), 20)
            await framework.add("half", "0.5")
            await framework.add("whole", "1", "large")
            assert await framework.told("half") == "GPU-a 0.5 4096"
            assert await framework.told("whole") == "GPU-b 1 81920"

            cluster.kill("host0")
            await cluster.start_agent("host0", HAS, *flags)
            await framework.add("other", "0.5")
            assert await framework.told("other") == "GPU-a 0.5 4096"
            expected = ["half 500 of GPU-a", "other 500 of GPU-a", "whole 1000 of GPU-b"]
            assert await uses(cluster) == expected

            (tmp_path / "end").touch()
            finished = [TaskState.FINISHED] * 3
            await eventually(
                lambda: list(framework.states.values()) == finished, 30, what="all have ended"
            )
