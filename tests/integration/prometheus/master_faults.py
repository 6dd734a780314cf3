"""Faults of masters: stalls, limits, crashes, and two of one name."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.harness.cluster import Cluster
from tests.harness.masters import running_master
from tests.harness.prometheus import Prometheus, scrape
from tests.integration.prometheus.alerts import fire, stop

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
