"""Time until a restarted master knows all its agents and tasks again.

    python -m tests.bench.reregister [--agents N] [--tasks N]

Agents are connections from two other processes that run no tasks (`tests.harness.light_agents`).
They back off as real agents do. The master is killed with SIGKILL and restarted after a second on
the same SQLite file. Times count from its restart. The agents and the framework share the machine
with the master, so the CPU of each is printed: what the master alone would need is its own CPU.
Then all are idle for 30 s but for heartbeats. The lag of the master's loop is that of a timer every
50 ms; on a busy machine it includes waits for a CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from itertools import pairwise
from pathlib import Path

import grpc.aio

from croupier.net.transport import free_addresses, make_channel
from croupier.sdk import Framework, Offer, Resources, Task, TaskStatus
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.chaos.real.daemon import Daemon
from tests.harness.eventually import eventually
from tests.harness.light_agents import CPUS, REGISTERED

UNIT = Resources.parse("cpus:1;mem:1GB")
DOWN_S = 1.0
# Time for the last acknowledgements.
SETTLE_S = 3.0
# Two heartbeats of each agent.
IDLE_S = 30.0
PATIENCE_S = 300.0
PARTS = (50, 90, 99, 100)


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
        # At once: none of many waits for the others.
        await asyncio.gather(*map(self._answer, offers))

    async def _answer(self, offer: Offer) -> None:
        if self.launched.get(offer.agent_id) or not self.each:
            await self.decline(offer, 3600)
            return
        self.launched[offer.agent_id] = self.each
        tasks = [Task(["sleep", "1"], resources=UNIT) for _ in range(self.each)]
        verdicts = await self.accept(offer, tasks, 3600)
        # On a busy machine the offer may have expired; another one follows.
        self.launched[offer.agent_id] = sum(verdict.ok for verdict in verdicts)

    async def on_update(self, status: TaskStatus) -> None:
        self.running.add(status.task_id)


class Bench:
    """One master, the processes of its agents, and a framework in this process."""

    ends: tuple[str, ...] = ()

    def __init__(self, folder: Path, agents: int, tasks: int) -> None:
        self.agents, self.tasks, self._folder = agents, tasks, folder
        listen, self._http = free_addresses(2)
        self._channel = make_channel(listen)
        self._operator = OperatorServiceStub(self._channel)
        self.master = Daemon(
            "master",
            [sys.executable, "-m", "croupier.master", "--listen", str(listen),
             "--http", str(self._http), "--store", f"sqlite:{folder / 'master.db'}",
             "--log-level", "warning"],
            folder / "master.log", {},
        )  # fmt: skip
        half = agents // 2
        self.light = [
            Daemon(
                f"light{first}",
                [sys.executable, "-m", "tests.harness.light_agents", str(listen), str(first),
                 str(count), *self.ends],
                folder / "light.log", {"PYTHONPATH": str(Path(__file__).parents[2])},
            )
            for first, count in ((0, half), (half, agents - half))
        ]  # fmt: skip
        self.filler = Filler(str(listen), tasks)

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
        await asyncio.sleep(SETTLE_S)
        self.master.kill()
        await asyncio.sleep(DOWN_S)
        began = time.monotonic()
        others = self._cpu_of_others_s()
        self.master.start()
        while len(times := self._registered(began)) < self.agents:
            assert time.monotonic() - began < PATIENCE_S, f"{len(times)} agents have registered"
            await asyncio.sleep(0.05)
        used_s, others_s = _cpu_s(self.master.pid), self._cpu_of_others_s() - others
        assert await self.known_agents() == self.agents
        shown = (f"{percent} % {times[len(times) * percent // 100 - 1]:.2f} s" for percent in PARTS)
        print(f"agents register after the restart: first {times[0]:.2f} s, {', '.join(shown)}")
        print(
            f"until then the master used {used_s:.2f} s of CPU, the agents and the framework"
            f" {others_s:.2f} s"
        )
        if running is not None:
            back = self.filler.subscribed_at
            await eventually(lambda: back[-1] > began, PATIENCE_S, "the framework subscribes")
            await self._tasks_known()
            print(f"framework subscribed again after {self.filler.subscribed_at[-1] - began:.2f} s")
        await asyncio.sleep(SETTLE_S)
        used_s = _cpu_s(self.master.pid)
        await asyncio.sleep(IDLE_S)
        idle = (_cpu_s(self.master.pid) - used_s) / IDLE_S
        print(f"idle, with heartbeats of {self.agents} agents, it uses {idle:.1%} of a core")
        rss_mb = _rss_mb(self.master.pid)
        print(f"the master has used {_cpu_s(self.master.pid):.2f} s of CPU, and {rss_mb} MB")
        print(f"late turns of its loop, by at most (s): {self._lags()}")

    def _registered(self, since: float) -> list[float]:
        """Return when each agent registered since `since`, in seconds from then, in order."""
        data = (self._folder / "registered").read_bytes()
        # The last entry may be written just now.
        entries = REGISTERED.iter_unpack(data[: len(data) // REGISTERED.size * REGISTERED.size])
        return sorted({number: at - since for number, at in entries if at >= since}.values())

    def _cpu_of_others_s(self) -> float:
        return time.process_time() + sum(_cpu_s(light.pid) for light in self.light)

    def _lags(self) -> dict[float, int]:
        """Return how many timers were late by over 25 ms, by the bounds of the histogram."""
        with urllib.request.urlopen(f"http://{self._http}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        lag = r'croupier_loop_lag_seconds_bucket{le="(\S+)"} (\S+)'
        found = re.findall(lag, text)
        counts = [(float(bound), int(float(number))) for bound, number in found]
        return {
            bound: number - before
            for (_, before), (bound, number) in pairwise(counts)
            if number > before and bound > 0.025
        }

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
