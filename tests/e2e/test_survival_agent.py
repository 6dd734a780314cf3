"""Agents that are killed, lose their work dir, are drained or are declared gone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from pathlib import Path

import pytest

from croupier.model.task import Reason
from croupier.sdk import Framework, Offer, Resources, Task, TaskState, TaskStatus
from tests.harness.cluster import processes_with, real_cluster
from tests.harness.command import croupier, ended, line, started
from tests.harness.eventually import eventually
from tests.harness.processes import is_running
from tests.harness.steady import Steady, at_work

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

HAS = "cpus:100;mem:16GB;disk:1GB"
UNIT = Resources.parse("cpus:1;mem:64MB")
QUICK = ("--heartbeat", "0.5", "--agent-timeout", "60")
TASKS = 100
# Waits for ever, and exits with its code on SIGUSR1.
SCRIPT = "trap 'exit $0' USR1; sleep 86411 & while :; do wait; done"


class Keeper(Framework):
    """A framework that launches a hundred tasks, where task n exits with n, and records updates."""

    def __init__(self, master: str) -> None:
        super().__init__(name="keeper", master=master, demand=UNIT, demand_count=TASKS)
        self.subscribed = asyncio.Event()
        self.accepted = 0
        self.updates: list[TaskStatus] = []

    async def on_subscribed(self, framework_id: str) -> None:
        self.subscribed.set()

    async def on_offers(self, offers: list[Offer]) -> None:
        for offer in offers:
            number = min(offer.resources["cpus"] // 1000, TASKS - self.accepted)
            tasks = [
                Task(["sh", "-c", SCRIPT, str(code)], resources=UNIT, task_id=f"t{code}")
                for code in range(self.accepted, self.accepted + number)
            ]
            verdicts = await self.accept(offer, tasks)
            self.accepted += sum(verdict.ok for verdict in verdicts)

    async def on_update(self, status: TaskStatus) -> None:
        self.updates.append(status)

    def pids(self) -> dict[str, int]:
        """Return the pids of the tasks that were reported as running."""
        return {s.task_id: s.pid for s in self.updates if s.state is TaskState.RUNNING}

    def ends(self) -> dict[str, int | None]:
        """Return the reported exit codes."""
        return {s.task_id: s.exit_code for s in self.updates if s.state.is_terminal}


def are_as_before(before: dict[str, tuple[int, str]], codes: range) -> bool:
    """Return whether the tasks still have the same processes."""
    of_codes = [before[f"t{code}"] for code in codes]
    return all(is_running(pid) and began(pid) == at for pid, at in of_codes)


def began(pid: int) -> str:
    """Return the start time of a process, which shows whether its pid was reused."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


async def end_tasks(keeper: Keeper, codes: range) -> None:
    """Make tasks exit, and wait until their processes have ended."""
    pids = keeper.pids()
    for code in codes:
        os.kill(pids[f"t{code}"], signal.SIGUSR1)
    await eventually(lambda: not any(is_running(pids[f"t{code}"]) for code in codes), 30)


async def test_a_hundred_tasks_outlive_their_agent(tmp_path: Path) -> None:
    """All keep running; the next agent reports the true codes of tasks that ended meanwhile."""
    async with (
        real_cluster(tmp_path, HAS, flags=QUICK) as cluster,
        at_work(Keeper(cluster.master)) as keeper,
    ):
        await eventually(lambda: len(keeper.pids()) == TASKS, 60, "all tasks run")
        before = {task: (pid, began(pid)) for task, pid in keeper.pids().items()}
        await end_tasks(keeper, range(10))
        await eventually(lambda: len(keeper.ends()) == 10, 30, "ten ends are reported")

        cluster.kill("host0")
        assert are_as_before(before, range(10, TASKS))
        await end_tasks(keeper, range(10, 40))
        await cluster.start_agent("host0", HAS)
        await eventually(lambda: len(keeper.ends()) == 40, 30, "forty ends are reported")
        assert are_as_before(before, range(40, TASKS))
        (view,) = await cluster.agents()
        assert view.tasks == TASKS - 40

        await end_tasks(keeper, range(40, TASKS))
        await eventually(lambda: len(keeper.ends()) == TASKS, 30, "all ends are reported")
        assert keeper.ends() == {f"t{code}": code for code in range(TASKS)}
        assert len([s for s in keeper.updates if s.state.is_terminal]) == TASKS
        assert keeper.pids() == {task: pid for task, (pid, _) in before.items()}
        await eventually(cluster.conserved)
        await eventually(lambda: not processes_with("sleep\x0086411"))


SMALL = "cpus:2;mem:2GB;disk:1GB"
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
        real_cluster(tmp_path, SMALL, SMALL) as cluster,
        at_work(Relaunching(cluster.master)) as framework,
    ):
        ids = {view.agent.hostname: view.agent.agent_id for view in await cluster.agents()}
        sick, well = ids["host0"], ids["host1"]
        await eventually(lambda: framework.count(sick, TaskState.FINISHED) > 5, 60)
        (tmp_path / "host0").rename(tmp_path / "aside")

        async def is_unhealthy(expected: bool = True) -> bool:
            views = {view.agent.agent_id: view for view in await cluster.agents()}
            return bool(views[sick].problems) is expected

        await eventually(is_unhealthy, 60, "the master knows that the agent is unhealthy")
        before = framework.count(well, TaskState.FINISHED)
        await eventually(lambda: framework.count(well, TaskState.FINISHED) > before + 20, 60)
        assert framework.count(sick, TaskState.FAILED, TaskState.DROPPED) <= FEW
        await _is_shown(cluster.master, sick)
        assert 'croupier_agents_withheld{why="unhealthy"} 1.0' in cluster.metrics(cluster.http)

        (tmp_path / "aside").rename(tmp_path / "host0")
        await eventually(lambda: is_unhealthy(False), 40, "the agent is healthy again")
        before = framework.count(sick, TaskState.FINISHED)
        await eventually(lambda: framework.count(sick, TaskState.FINISHED) > before, 60)
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


FLAGS = ("--heartbeat", "0.5", "--agent-timeout", "5")
HALF = Resources.parse("cpus:1;mem:256MB")
# Longer than the master takes to come back.
GRACE_S = 4
# A number that identifies the tasks among all processes.
NAP = "27182.5"


class Stubborn(Framework):
    """A framework that fills its offers with tasks that ignore SIGTERM."""

    def __init__(self, master: str) -> None:
        super().__init__(name="stubborn", master=master, demand=HALF, failover_timeout_s=60)
        self.unit = HALF
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
                tasks.append(Task(shell=shell, resources=HALF, grace_s=GRACE_S))
                left -= HALF
            await self.accept(offer, tasks)

    async def on_update(self, status: TaskStatus) -> None:
        self.latest[status.task_id] = status

    def on(self, agent_id: str, state: TaskState) -> list[TaskStatus]:
        """Return the tasks of an agent that are in this state."""
        known = self.latest.values()
        return [each for each in known if each.agent_id == agent_id and each.state is state]


async def test_a_drain_is_followed_through_the_kill_of_its_master(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, SMALL, SMALL, flags=FLAGS) as cluster,
        at_work(Stubborn(cluster.master)) as framework,
    ):
        ids = {view.agent.hostname: view.agent.agent_id for view in await cluster.agents()}
        host0, host1 = ids["host0"], ids["host1"]
        running = TaskState.RUNNING
        await eventually(lambda: len(framework.on(host0, running)) == 2, 60)
        await eventually(lambda: len(framework.on(host1, running)) == 2, 60)
        command = ("drain", "host0", "--grace", "1h", "--wait", "--timeout", "1m")
        async with started(*command, "--master", cluster.master) as process:
            killing = TaskState.KILLING
            await eventually(lambda: len(framework.on(host0, killing)) == 2, 60)
            # The command must have listed the tasks before the master dies.
            assert f"2 tasks left; all are killed within {GRACE_S} s" in await line(process)
            cluster.kill("master")
            await cluster.start_master(*FLAGS)
            done = await ended(process, 60)
        assert (done.code, done.err) == (0, "")
        assert done.out.endswith("is drained: it has no tasks left, and gets no offers\n")
        await eventually(lambda: len(framework.on(host0, TaskState.KILLED)) == 2, 60)
        reasons = {each.reason for each in framework.on(host0, TaskState.KILLED)}
        assert reasons == {Reason.AGENT_DRAINING}
        assert len(framework.on(host1, running)) == 2
        assert len(processes_with(f"sleep\0{NAP}")) == 2
        before = framework.offered.count(host0)
        listed = await croupier("agents", "--master", cluster.master)
        assert "connected, drained" in listed.out
        again = await croupier("agent", "reactivate", "host0", "--master", cluster.master)
        assert again.out == f"agent host0 ({host0[:7]}) is connected\n"
        await eventually(lambda: framework.offered.count(host0) > before, 60)
        await eventually(lambda: len(framework.on(host0, running)) == 2, 60)
