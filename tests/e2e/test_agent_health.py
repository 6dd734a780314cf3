"""An agent whose work dir is moved away is withheld, and offered again once it is restored."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from croupier.sdk import TaskState, TaskStatus
from tests.harness.cluster import real_cluster
from tests.harness.command import croupier
from tests.harness.eventually import eventually
from tests.harness.steady import Steady, at_work

pytestmark = pytest.mark.e2e

HAS = "cpus:2;mem:2GB;disk:1GB"
# An agent that is not withheld would fail hundreds of launches a second.
FEW = 40


class Relaunching(Steady):
    """A framework that fills every offer with short tasks, also after failures."""

    def __init__(self, master: str) -> None:
        super().__init__("relaunching", master, "cpus:1;mem:256MB", seconds=0.1)
        self.ends: list[TaskStatus] = []

    async def on_update(self, status: TaskStatus) -> None:
        if status.state.is_terminal:
            self.ends.append(status)

    def count(self, agent_id: str, *states: TaskState) -> int:
        """Return how many tasks of an agent ended in a state."""
        return sum(each.agent_id == agent_id and each.state in states for each in self.ends)


async def test_an_agent_without_its_work_dir_is_offered_again_once_it_is_back(
    tmp_path: Path,
) -> None:
    async with (
        real_cluster(tmp_path, HAS, HAS) as cluster,
        at_work(Relaunching(cluster.master)) as framework,
    ):
        ids = {view.agent.hostname: view.agent.agent_id for view in await cluster.agents()}
        sick, well = ids["host0"], ids["host1"]
        await eventually(lambda: framework.count(sick, TaskState.FINISHED) > 5, 20)
        (tmp_path / "host0").rename(tmp_path / "aside")

        async def is_unhealthy(expected: bool = True) -> bool:
            views = {view.agent.agent_id: view for view in await cluster.agents()}
            return bool(views[sick].problems) is expected

        await eventually(is_unhealthy, 20, "the master knows that the agent is unhealthy")
        before = framework.count(well, TaskState.FINISHED)
        await eventually(lambda: framework.count(well, TaskState.FINISHED) > before + 20, 20)
        assert framework.count(sick, TaskState.FAILED, TaskState.DROPPED) <= FEW
        await _is_shown(cluster.master, sick)
        assert 'croupier_agents_withheld{why="unhealthy"} 1.0' in cluster.metrics(cluster.http)

        (tmp_path / "aside").rename(tmp_path / "host0")
        await eventually(lambda: is_unhealthy(False), 40, "the agent is healthy again")
        before = framework.count(sick, TaskState.FINISHED)
        await eventually(lambda: framework.count(sick, TaskState.FINISHED) > before, 20)
        assert framework.count(sick, TaskState.FAILED, TaskState.DROPPED) <= FEW
        assert '"event": "agent_unhealthy"' in cluster.log("master")
        assert '"event": "agent_healthy"' in cluster.log("host0")


async def _is_shown(master: str, agent_id: str) -> None:
    """Check that all operator commands show the problem."""
    said = await croupier("agents", "--master", master)
    assert "unhealthy (" in said.out
    said = await croupier("agent", "show", "host0", "--master", master)
    assert "unhealthy: work-dir: " in said.out
    assert "was removed or replaced" in said.out
    said = await croupier("why", "relaunching", "--agent", "host0", "--master", master)
    assert re.search(rf"agent is unhealthy: agent \S+ \({agent_id[:7]}\): ", said.out), said.out
    assert "-> repair what the agent reports" in said.out
    said = await croupier("agents", "--json", "--master", master)
    (shown,) = [each for each in json.loads(said.out) if each["agent_id"] == agent_id]
    assert {"work-dir", "checkpoint"} == {each["part"] for each in shown["problems"]}
