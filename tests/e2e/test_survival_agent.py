"""kill -9 of an agent with a hundred tasks: they keep running, and their ends are reported."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from croupier.sdk import Framework, Offer, Resources, Task, TaskState, TaskStatus
from tests.harness.cluster import processes_with, real_cluster
from tests.harness.eventually import eventually
from tests.harness.processes import is_running
from tests.harness.steady import at_work

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

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
