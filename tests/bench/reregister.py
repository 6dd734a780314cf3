"""Time until a restarted master knows all its agents and tasks again.

    python -m tests.bench.reregister [--agents N] [--tasks N]

Agents are connections from two other processes that run no tasks (`tests.harness.light_agents`).
They back off as real agents do: a random time from 0.02 s to a bound that doubles from 0.2 s up to
10 s. The master is killed with SIGKILL and restarted after a second on the same SQLite file. Times
count from its restart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import grpc.aio

from croupier.net.transport import free_addresses, make_channel
from croupier.sdk import Framework, Offer, Resources, Task, TaskStatus
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.chaos.real.daemon import Daemon
from tests.harness.eventually import eventually
from tests.harness.light_agents import CPUS

UNIT = Resources.parse("cpus:1;mem:1GB")
DOWN_S = 1.0
PATIENCE_S = 300.0


class Filler(Framework):
    """Launches `each` tasks on each agent."""

    def __init__(self, master: str, each: int) -> None:
        super().__init__(name="filler", master=master)
        self.each = each
        self.launched: dict[str, int] = {}
        self.running: set[str] = set()
        self.subscribed_at: list[float] = []

    async def on_subscribed(self, framework_id: str) -> None:
        self.subscribed_at.append(time.monotonic())

    async def on_offers(self, offers: list[Offer]) -> None:
        for offer in offers:
            if offer.agent_id in self.launched or not self.each:
                await self.decline(offer, 3600)
                continue
            tasks = [Task(["sleep", "1"], resources=UNIT) for _ in range(self.each)]
            verdicts = await self.accept(offer, tasks, 3600)
            # On a busy machine the offer may have expired; another one follows.
            if any(verdict.ok for verdict in verdicts):
                self.launched[offer.agent_id] = sum(verdict.ok for verdict in verdicts)

    async def on_update(self, status: TaskStatus) -> None:
        self.running.add(status.task_id)


class Bench:
    """One master, the processes of its agents, and a framework in this process."""

    filler_type: type[Filler] = Filler

    def __init__(self, folder: Path, agents: int, tasks: int) -> None:
        self.agents, self.tasks, self._folder = agents, tasks, folder
        listen, http = free_addresses(2)
        self._channel = make_channel(listen)
        self._operator = OperatorServiceStub(self._channel)
        self.master = Daemon(
            "master",
            [sys.executable, "-m", "croupier.master", "--listen", str(listen), "--http", str(http),
             "--store", f"sqlite:{folder / 'master.db'}", "--log-level", "warning"],
            folder / "master.log", {},
        )  # fmt: skip
        half = agents // 2
        self.light = [
            Daemon(
                f"light{first}",
                [sys.executable, "-m", "tests.harness.light_agents", str(listen), str(first),
                 str(count)],
                folder / "light.log", {"PYTHONPATH": str(Path(__file__).parents[2])},
            )
            for first, count in ((0, half), (half, agents - half))
        ]  # fmt: skip
        self.filler = self.filler_type(str(listen), tasks)

    async def known_agents(self) -> int:
        """Return the number of agents that the master knows; 0 if it does not answer."""
        try:
            answer = await self._operator.GetMaster(pb.GetMasterRequest(), timeout=2)
        except grpc.aio.AioRpcError:
            return 0
        return answer.total.cpus_milli // (1000 * CPUS)

    async def run(self) -> None:
        """Fill the cluster, kill the master, and print how it recovers."""
        self.master.start()
        running: asyncio.Task[None] | None = None
        try:
            await asyncio.wait_for(self._channel.channel_ready(), 30)
            began = time.monotonic()
            for light in self.light:
                light.start()
            await self._until(self.agents)
            print(f"{self.agents} agents register at first in {time.monotonic() - began:.2f} s")
            if self.tasks:
                running = asyncio.create_task(self.filler.run())
                await self._filled(running)
            await self._restarted(running)
        finally:
            if running is not None:
                await self.filler.stop()
                await running
            for daemon in (*self.light, self.master):
                daemon.end()
            ended: Counter[str] = Counter()
            for line in (self._folder / "light.log").read_text().splitlines():
                if line.startswith("{"):
                    ended.update(json.loads(line))
            print(f"attempts of agents that ended: {dict(ended.most_common(8))}")
            await self._channel.close()

    async def _filled(self, running: asyncio.Task[None]) -> None:
        wanted = self.agents * self.tasks
        began = time.monotonic()
        await eventually(
            lambda: running.done() or len(self.filler.running) == wanted, PATIENCE_S, "tasks run"
        )
        print(f"{wanted} tasks are launched and known to run in {time.monotonic() - began:.2f} s")

    async def _restarted(self, running: asyncio.Task[None] | None) -> None:
        self.master.kill()
        await asyncio.sleep(DOWN_S)
        began = time.monotonic()
        self.master.start()
        answered = None
        reached: dict[int, float] = {}
        while (known := await self.known_agents()) < self.agents:
            now = time.monotonic() - began
            if answered is None and known:
                answered = now
            for percent in (50, 90, 99):
                if known * 100 >= self.agents * percent:
                    reached.setdefault(percent, now)
            assert now < PATIENCE_S, f"{known} of {self.agents} agents are known"
            await asyncio.sleep(0.05)
        reached[100] = time.monotonic() - began
        times = ", ".join(f"{percent} % {at:.2f} s" for percent, at in sorted(reached.items()))
        print(f"after a restart agents are known again: {times} (first seen {answered or 0:.2f} s)")
        if running is not None:
            await self._tasks_known()
            print(f"framework subscribed again after {self.filler.subscribed_at[-1] - began:.2f} s")
        used_s, rss_mb = _cpu_s(self.master.pid), _rss_mb(self.master.pid)
        print(f"the master has used {used_s:.2f} s of CPU since its start, and {rss_mb} MB")

    async def _tasks_known(self) -> None:
        request, states = pb.ListTasksRequest(), list[int]()
        while True:
            listed = await self._operator.ListTasks(request, timeout=30)
            states += [int(view.status.state) for view in listed.tasks]
            if not listed.next_page_token:
                break
            request.page_token = listed.next_page_token
        print(f"{len(states)} tasks are listed, {states.count(2)} of them RUNNING")

    async def _until(self, number: int) -> None:
        async def all_known() -> bool:
            return await self.known_agents() == number

        await eventually(all_known, PATIENCE_S, f"{number} agents are known")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _rss_mb(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 2**20


async def bench(folder: Path, agents: int, tasks: int) -> None:
    await Bench(folder, agents, tasks).run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reregister")
    parser.add_argument("--agents", type=int, default=2000)
    parser.add_argument("--tasks", type=int, default=5, help="on each agent")
    options = parser.parse_args()
    # As an installed master starts: compiling its modules takes seconds.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(bench(Path(folder), options.agents, options.tasks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
