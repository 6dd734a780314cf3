"""A cluster of the old build with one framework, whose daemons are replaced one by one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from croupier.v1 import operator_pb2
from tests.chaos.real.journal import Entry, Subscribed, Update, read_entries
from tests.chaos.real.ledger import Ledger, read_ledger
from tests.harness.cluster import Cluster
from tests.harness.eventually import eventually
from tests.harness.processes import is_running
from tests.upgrade.build import Build
from tests.upgrade.keeper import LATE, work_of

HAS = "cpus:{};mem:4GB;disk:4GB"
QUICK = ("--heartbeat", "0.5", "--agent-timeout", "60")
WAIT_S = 30.0
MASTER, AGENT = "master", "host0"
# Terminal updates that the framework has not acknowledged when the upgrade begins.
HELD = 5


class Upgrade(Cluster):
    """A cluster of the old build with one framework.

    Attributes:
        short: how many tasks of the framework have ended by themselves before the upgrade.
        tasks: how many it has launched.
    """

    def __init__(self, work_dir: Path, old: Build, short: int, tasks: int) -> None:
        super().__init__(work_dir)
        self.environment = old.environment
        # The old agent knows no isolation.
        self.agent_flags = ()
        self.short, self.tasks = short, tasks
        self._old = old
        self._keeper: subprocess.Popen[bytes] | None = None
        self._live = list(range(short, tasks))

    @property
    def has(self) -> str:
        """Return the resources of the agent: room for all long tasks and a few more."""
        return HAS.format(self.tasks - self.short + 9)

    def codes(self) -> dict[str, int]:
        """Return the exit code of each task, those that are launched late included."""
        names = [f"t-{number}" for number in range(self.tasks + LATE)]
        return {name: work_of(name).code for name in names}

    @property
    def entries(self) -> list[Entry]:
        return read_entries(self.work_dir / "journal")

    @property
    def ran(self) -> Ledger:
        return read_ledger(self.work_dir / "ran")

    @property
    def held(self) -> Path:
        return self.work_dir / "hold"

    @property
    def more(self) -> Path:
        return self.work_dir / "more"

    def ends(self) -> dict[str, int | None]:
        """Return the exit codes that the framework has received, by task."""
        return {
            entry.task_id: entry.exit_code
            for entry in self.entries
            if isinstance(entry, Update) and entry.state in ("FINISHED", "FAILED")
        }

    def start_keeper(self, *, is_old: bool) -> None:
        """Start the framework on the SDK of the old build or of this one."""
        known = [entry.framework_id for entry in self.entries if isinstance(entry, Subscribed)]
        environment = self._old.environment
        if not is_old:
            environment = {**environment, "PYTHONPATH": environment["PYTHONPATH"].split(":")[1]}
        with (self.work_dir / "keeper.log").open("ab") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", "tests.upgrade.keeper", str(self.work_dir), self.master,
                 str(self.short), str(self.tasks), *known[-1:]],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment,
            )  # fmt: skip

    def stop_keeper(self) -> None:
        if self._keeper is not None:
            self._keeper.kill()
            self._keeper.wait(timeout=10)

    async def start_daemon(self, name: str) -> None:
        """Start the master or the agent, and wait until the agent is connected."""
        if name == MASTER:
            await self.start_master(*QUICK)
        else:
            await self.start_agent(AGENT, self.has, on_stop="leave")
        if {MASTER, AGENT} <= self.processes.keys():
            await eventually(self.is_whole, WAIT_S, "agent and framework are connected")

    async def stop_daemon(self, name: str, number: signal.Signals) -> None:
        """End the master or the agent, and wait until the master misses the agent."""
        self.kill(name, number)
        if MASTER in self.processes:
            await eventually(self.is_agent_away, WAIT_S, "the master misses the agent")

    async def is_agent_away(self) -> bool:
        return [view.state for view in await self.agents()] != ["connected"]

    async def is_whole(self) -> bool:
        self.check_running()
        agents = {view.agent.hostname: view.state for view in await self.agents()}
        frameworks = {name: view.state for name, view in (await self.frameworks()).items()}
        return agents == {AGENT: "connected"} and frameworks == {"keeper": "connected"}

    async def end_tasks(self, number: int) -> None:
        """Have the next tasks exit, and wait until their processes are gone."""
        chosen, self._live = self._live[:number], self._live[number:]
        starts = self.ran.starts
        pids = [starts[f"t-{number}"][0] for number in chosen]
        for pid in pids:
            os.kill(pid, signal.SIGUSR1)
        await eventually(lambda: not any(map(is_running, pids)), WAIT_S, "tasks end")

    async def check_known(self) -> None:
        """Check that the master lists every live task with its original process."""
        request = operator_pb2.ListTasksRequest()
        starts = self.ran.starts

        async def are_known() -> bool:
            listed = await self.operator.ListTasks(request, timeout=10)
            pids = {view.status.task_id: view.status.pid for view in listed.tasks}
            return all(pids.get(f"t-{each}") == starts[f"t-{each}"][0] for each in self._live)

        await eventually(are_known, WAIT_S, "every live task is listed with its pid")
        assert all(is_running(starts[f"t-{each}"][0]) for each in self._live)
        assert all(len(pids) == 1 for pids in starts.values())


@asynccontextmanager
async def old_cluster(
    work_dir: Path, old: Build, *, short: int = 5, tasks: int = 20
) -> AsyncIterator[Upgrade]:
    """Run master, agent and framework of the old build, with tasks in every state."""
    upgrade = Upgrade(work_dir, old, short, tasks)
    try:
        await upgrade.start_master(*QUICK)
        await upgrade.start_agent(AGENT, upgrade.has, on_stop="leave")
        upgrade.start_keeper(is_old=True)
        await eventually(lambda: len(upgrade.ran.starts) == tasks, 2 * WAIT_S, "all tasks start")
        await eventually(lambda: len(upgrade.ends()) == short, WAIT_S, "short tasks end")
        upgrade.held.touch()
        await upgrade.end_tasks(HELD)
        yield upgrade
        upgrade.check_running()
    finally:
        upgrade.stop_keeper()
        await upgrade.stop()
