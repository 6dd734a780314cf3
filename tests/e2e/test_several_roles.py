"""A framework in several roles on a real cluster, across a restart of the master."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from croupier.sdk import Demand, Framework, Offer, Resources, Role, Task, matches
from croupier.v1 import operator_pb2, task_pb2
from tests.harness.cluster import Cluster, real_cluster
from tests.harness.eventually import eventually

pytestmark = pytest.mark.e2e

SMALL = Resources.parse("cpus:1;mem:64MB")
LARGE = Resources.parse("cpus:2;mem:64MB")
QUICK = ("--heartbeat", "0.5", "--agent-timeout", "5")


class Two(Framework):
    """A framework with small tasks on some hosts in one role, and large pairs in another."""

    def __init__(self, master: str) -> None:
        super().__init__(
            name="two",
            roles=["ads/prod", "web"],
            master=master,
            demands=[
                Demand(SMALL, 2, (matches("hostname", "host[1-9]"),)),
                Demand(LARGE, 4, min_per_offer=2, max_per_offer=2, role=Role("web")),
            ],
        )
        self.seen: list[tuple[str, str, int]] = []

    async def on_offers(self, offers: list[Offer]) -> None:
        for offer in offers:
            unit = LARGE if offer.role == "web" else SMALL
            units = unit.units_within(offer.resources, 100)
            self.seen.append((offer.role, offer.hostname, units))
            tasks = [Task(["sleep", "14142"], resources=unit) for _ in range(units)]
            await self.accept(offer, tasks)


async def roles_of_tasks(cluster: Cluster) -> list[tuple[str, int]]:
    """Return role and cpus of every running task."""
    request = operator_pb2.ListTasksRequest()
    listed = await cluster.operator.ListTasks(request, timeout=10)
    return sorted(
        (view.role, view.task.resources.cpus_milli // 1000)
        for view in listed.tasks
        if view.status.state == task_pb2.TASK_RUNNING
    )


async def test_tasks_keep_their_roles_when_the_master_dies(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "cpus:8;mem:4GB", "cpus:8;mem:4GB", flags=QUICK) as cluster:
        framework = Two(cluster.master)
        running = asyncio.create_task(framework.run())
        expected = [("ads/prod", 1)] * 2 + [("web", 2)] * 4

        async def are_in_their_roles() -> bool:
            return await roles_of_tasks(cluster) == expected

        await eventually(are_in_their_roles, 20, what="six tasks run in two roles")
        assert {host for role, host, _ in framework.seen if role == "ads/prod"} == {"host1"}
        assert {units for role, _, units in framework.seen if role == "web"} == {2}
        cluster.kill("master")
        await cluster.start_master(*QUICK)
        await eventually(are_in_their_roles, 20, what="the next master knows the roles")
        await framework.stop(teardown=True)
        await running
        await eventually(cluster.conserved, 20)
