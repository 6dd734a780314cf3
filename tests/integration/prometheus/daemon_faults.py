"""Faults of masters, agents and tasks: stalls, limits, crashes, two masters of one name."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from croupier.agent.probe import GivenResources
from croupier.agent.recover import clean_up
from croupier.master.app import MasterDaemon
from croupier.net.address import Address
from croupier.net.transport import free_addresses
from croupier.sdk import Resources, Task, TaskStatus
from tests.harness import small_disks
from tests.harness.agent_process import AgentProcess
from tests.harness.agents import RESOURCES, running_agent
from tests.harness.cluster import Cluster, log_events
from tests.harness.eventually import eventually
from tests.harness.masters import running_master
from tests.harness.prometheus import Prometheus, scrape
from tests.harness.proxy import Proxy
from tests.integration.prometheus.workload import Workload, fire, running, stop

HAS = "cpus:1;mem:64MB;disk:64MB"
CLUSTER, TWINS = "one", "twins"
AGENTS = ("a1", "a2")
# The master runs for a tenth of a second between two stalls.
STALL_S, RUN_S = 0.6, 0.1
CLIENTS = 60


@asynccontextmanager
async def stalling(pid: int) -> AsyncIterator[None]:
    """Stop a process again and again, as a machine does that has other work."""

    async def stall() -> None:
        try:
            while True:
                signal.pidfd_send_signal(process, signal.SIGSTOP)
                await asyncio.sleep(STALL_S)
                signal.pidfd_send_signal(process, signal.SIGCONT)
                await asyncio.sleep(RUN_S)
        finally:
            signal.pidfd_send_signal(process, signal.SIGCONT)

    process = os.pidfd_open(pid)
    task = asyncio.create_task(stall())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        os.close(process)


class MasterFaults:
    """A master process with two agents, and two masters of one name."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self.stack, self._cluster = stack, Cluster(folder / CLUSTER)
        self._cluster.work_dir.mkdir()
        self._other = AsyncExitStack()
        self.prometheus: Prometheus

    async def start(self) -> list[dict[str, Any]]:
        """Start everything; return what is to be scraped."""
        self.stack.push_async_callback(self._cluster.stop)
        await self._cluster.start_master()
        for name in AGENTS:
            await self._cluster.start_agent(name, HAS)
        await self.stack.enter_async_context(self._other)
        pair = [
            await each.enter_async_context(running_master()) for each in (self.stack, self._other)
        ]
        return [
            scrape("croupier-one", self._cluster.http, cluster=CLUSTER),
            scrape("croupier-twins", *(each.http_address for each in pair), cluster=TWINS),
        ]

    async def run(self) -> None:
        """Force each fault, and end it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._twins())
            await self._loop_lag()
            await self._open_files()
            await self._crashes()

    async def _loop_lag(self) -> None:
        async with stalling(self._cluster.processes["master"].pid):
            await fire(self.prometheus, CLUSTER, "LoopLag")
        await stop(self.prometheus, CLUSTER, "LoopLag")

    async def _open_files(self) -> None:
        pid = self._cluster.processes["master"].pid
        usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + CLIENTS, usual[1]))
        clients: list[socket.socket] = []
        try:
            server = (self._cluster.listen.host, self._cluster.listen.port)
            clients.extend(socket.create_connection(server) for _ in range(CLIENTS - 5))
            await fire(self.prometheus, CLUSTER, "OpenFiles")
        finally:
            for client in clients:
                client.close()
        await stop(self.prometheus, CLUSTER, "OpenFiles")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)

    async def _crashes(self) -> None:
        """Restart the master three times; its agents do not return."""
        for name in AGENTS:
            self._cluster.kill(name)
        self._cluster.kill("master")
        await fire(self.prometheus, CLUSTER, "NoLeader", "TargetDown")
        for _ in range(2):
            await self._cluster.start_master()
            self._cluster.kill("master")
        await self._cluster.start_master()
        await fire(
            self.prometheus, CLUSTER, "AgentsMissing", "ManyAgentsLost", "LeaderChangesOften"
        )
        await stop(self.prometheus, CLUSTER, "NoLeader", "TargetDown")
        for name in AGENTS:
            await self._cluster.start_agent(name, HAS)
        await stop(
            self.prometheus, CLUSTER, "AgentsMissing", "ManyAgentsLost", "LeaderChangesOften"
        )

    async def _twins(self) -> None:
        """Two clusters of one name have two leaders."""
        await fire(self.prometheus, TWINS, "SeveralLeaders")
        await self._other.aclose()
        await stop(self.prometheus, TWINS, "SeveralLeaders")


MIB = 1024 * 1024
# The lot is a resource that only one agent has.
LOT = Resources.parse("cpus:0.1;mem:1MB;disk:1MB;lots:1")


class Deaf(Workload):
    """A framework whose handler of updates hangs."""

    def __init__(self, master: Address) -> None:
        super().__init__(master, "deaf")
        self.hears = asyncio.Event()

    async def on_update(self, status: TaskStatus) -> None:
        await self.hears.wait()
        await super().on_update(status)


HARMED = "agents"


class AgentFaults:
    """A master, and agents that are harmed."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self.stack, self.folder = stack, folder / HARMED
        self.folder.mkdir()
        self.master: MasterDaemon
        self.prometheus: Prometheus
        self.disk: AgentProcess
        self.link: Proxy

    async def start(self) -> list[dict[str, Any]]:
        """Start everything; return what is to be scraped."""
        enter = self.stack.enter_async_context
        self.master = await enter(running_master(heartbeat=0.5, agent_timeout=2.0))
        targets = [await self._start_full_agent()]
        (front,) = free_addresses(1)
        self.link = Proxy(self.master.address, front, dict)
        await self.link.start()
        self.stack.push_async_callback(self.link.stop)
        for name, address, more in (
            ("well", self.master.address, ";lots:100"),
            ("removed", self.master.address, ""),
            ("remote", front, ""),
        ):
            agent = await enter(
                running_agent(
                    self.folder / name,
                    address,
                    hostname=name,
                    resources=GivenResources.parse(RESOURCES + more),
                )
            )
            await eventually(lambda agent=agent: agent.link.is_registered, 60)  # type: ignore[misc]
            targets.append(agent.http_address)
        return [
            scrape("croupier-agents-master", self.master.http_address, cluster=HARMED),
            scrape("croupier-agents", *targets, cluster=HARMED),
        ]

    async def run(self) -> None:
        """Force each fault, and end it."""
        faults: Iterable[Callable[[], Coroutine[Any, Any, None]]] = (
            self._full_disk,
            self._work_dir_removed,
            self._link_cut,
            self._wrong_command,
            self._too_large,
            self._handler_hangs,
        )
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                group.create_task(fault())
        await self._stop("AgentsUnhealthy")

    async def _start_full_agent(self) -> Address:
        """Start an agent on a disk of its own that is nearly full; return where it is scraped."""
        work, log = self.folder / "full", self.folder / "full.log"
        prefix = small_disks.on_small_disk(work, "64m")
        self.disk = AgentProcess(
            self.master.address, work, log, RESOURCES, "--hostname=full", "--on-stop=end"
        )
        ballast = f"head -c {56 * MIB} /dev/zero >{work}/ballast"
        self.disk.prefix = (*prefix, "sh", "-c", f'{ballast} && exec "$@"', "sh")
        self.stack.push_async_callback(clean_up, work)
        self.stack.callback(self.disk.end)
        self.disk.start()

        def address() -> str:
            lines = log_events(log.read_text())
            return next((line["http"] for line in lines if line["event"] == "agent_started"), "")

        await eventually(address, 60, "the agent has started")
        return Address.parse(address())

    async def _fire(self, *alerts: str) -> None:
        await fire(self.prometheus, HARMED, *alerts)

    async def _stop(self, *alerts: str) -> None:
        await stop(self.prometheus, HARMED, *alerts)

    async def _full_disk(self) -> None:
        await self._fire("AgentDiskFilling")
        folder = small_disks.seen_by(self.disk.pid, self.disk.work_dir)
        small_disks.fill(folder)
        await self._fire("AgentDiskFull")
        small_disks.make_room(folder)
        await self._stop("AgentDiskFull", "AgentDiskFilling")

    async def _work_dir_removed(self) -> None:
        work, aside = self.folder / "removed", self.folder / "aside"
        work.rename(aside)
        await self._fire("AgentProblem", "AgentsUnhealthy")
        aside.rename(work)
        await self._stop("AgentProblem")

    async def _link_cut(self) -> None:
        self.link.cut("")
        await self._fire("AgentNotRegistered", "AgentsUnreachable", "ManyAgentsLost")
        self.link.heal("")
        await self._stop("AgentNotRegistered", "AgentsUnreachable", "ManyAgentsLost")

    async def _wrong_command(self) -> None:
        async with running(Workload(self.master.address, "wrong")) as framework:
            tasks = [Task(["/no/such/program"], resources=LOT) for _ in range(8)]
            await framework.submit(tasks)
            await self._fire("LaunchesFail")
            await framework.stop(teardown=True)
        await self._stop("LaunchesFail")

    async def _too_large(self) -> None:
        async with running(Workload(self.master.address, "large")) as framework:
            await framework.submit([Task(["true"], resources=Resources.parse("cpus:100"))])
            await self._fire("TasksStuckQueued")
            await framework.stop(teardown=True)
        await self._stop("TasksStuckQueued")

    async def _handler_hangs(self) -> None:
        async with running(Deaf(self.master.address)) as framework:
            await framework.submit(Task(["true"], resources=LOT) for _ in range(6))
            await self._fire("EndsNotAcknowledged")
            framework.hears.set()
            await self._stop("EndsNotAcknowledged")
