"""Operators drain agents and declare them gone, with real daemons."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from croupier.model.task import Reason
from croupier.sdk import Framework, Offer, Resources, Task, TaskState, TaskStatus
from tests.harness.cluster import processes_with, real_cluster
from tests.harness.command import croupier, ended, line, started
from tests.harness.eventually import eventually
from tests.harness.steady import at_work

pytestmark = pytest.mark.e2e

HAS = "cpus:2;mem:2GB;disk:1GB"
QUICK = ("--heartbeat", "0.5", "--agent-timeout", "5")
UNIT = Resources.parse("cpus:1;mem:256MB")
# Longer than the master takes to come back.
GRACE_S = 4
# A number that identifies the tasks among all processes.
NAP = "27182.5"


class Stubborn(Framework):
    """A framework that fills its offers with tasks that ignore SIGTERM."""

    def __init__(self, master: str) -> None:
        super().__init__(name="stubborn", master=master, demand=UNIT, failover_timeout_s=60)
        self.unit = UNIT
        self.subscribed = asyncio.Event()
        self.latest: dict[str, TaskStatus] = {}
        self.offered: list[str] = []

    async def on_subscribed(self, framework_id: str) -> None:
        self.subscribed.set()

    async def on_offers(self, offers: list[Offer]) -> None:
        for offer in offers:
            self.offered.append(offer.agent_id)
            tasks, left = [], offer.resources
            while self.unit <= left:
                shell = f"trap '' TERM; while :; do sleep {NAP} & wait; done"
                tasks.append(Task(shell=shell, resources=UNIT, grace_s=GRACE_S))
                left -= UNIT
            await self.accept(offer, tasks)

    async def on_update(self, status: TaskStatus) -> None:
        self.latest[status.task_id] = status

    def on(self, agent_id: str, state: TaskState) -> list[TaskStatus]:
        """Return the tasks of an agent that are in this state."""
        known = self.latest.values()
        return [each for each in known if each.agent_id == agent_id and each.state is state]


async def test_a_drain_is_followed_through_the_kill_of_its_master(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, HAS, HAS, flags=QUICK) as cluster,
        at_work(Stubborn(cluster.master)) as framework,
    ):
        ids = {view.agent.hostname: view.agent.agent_id for view in await cluster.agents()}
        host0, host1 = ids["host0"], ids["host1"]
        running = TaskState.RUNNING
        await eventually(lambda: len(framework.on(host0, running)) == 2, 20)
        await eventually(lambda: len(framework.on(host1, running)) == 2, 20)
        command = ("drain", "host0", "--grace", "1h", "--wait", "--timeout", "1m")
        async with started(*command, "--master", cluster.master) as process:
            killing = TaskState.KILLING
            await eventually(lambda: len(framework.on(host0, killing)) == 2, 20)
            # The command must have listed the tasks before the master dies.
            assert f"2 tasks left; all are killed within {GRACE_S} s" in await line(process)
            cluster.kill("master")
            await cluster.start_master(*QUICK)
            done = await ended(process, 60)
        assert (done.code, done.err) == (0, "")
        assert done.out.endswith("is drained: it has no tasks left, and gets no offers\n")
        await eventually(lambda: len(framework.on(host0, TaskState.KILLED)) == 2, 10)
        reasons = {each.reason for each in framework.on(host0, TaskState.KILLED)}
        assert reasons == {Reason.AGENT_DRAINING}
        assert len(framework.on(host1, running)) == 2
        assert len(processes_with(f"sleep\0{NAP}")) == 2
        before = framework.offered.count(host0)
        listed = await croupier("agents", "--master", cluster.master)
        assert "connected, drained" in listed.out
        again = await croupier("agent", "reactivate", "host0", "--master", cluster.master)
        assert again.out == f"agent host0 ({host0[:7]}) is connected\n"
        await eventually(lambda: framework.offered.count(host0) > before, 20)
        await eventually(lambda: len(framework.on(host0, running)) == 2, 20)
