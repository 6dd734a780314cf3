"""The cluster under test: real daemons, and between any two of them a network that can fail.

Rule: on loopback, daemons know only the proxies' addresses of each other, in redirects too, so that
a cut connection stays cut. Only the checker connects to masters directly. With hosts, each daemon
is on a host of its own, and packets between hosts pass a switch.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from croupier.agent.isolation.cgroup.isolator import remove_groups
from croupier.model.errors import CroupierError
from croupier.model.resources import Resources, total_of
from croupier.net.address import Address
from croupier.net.transport import free_addresses, make_channel
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.chaos.real.certificates import ClusterCertificates
from tests.chaos.real.daemon import Daemon
from tests.chaos.real.host_network import HostNetwork
from tests.chaos.real.machine_faults import PreloadFaults, SmallDisk
from tests.harness.cluster import fetch, processes_with
from tests.harness.debian import program
from tests.harness.eventually import eventually
from tests.harness.processes import parent_of
from tests.harness.proxy import Proxy

REPOSITORY = Path(__file__).resolve().parents[3]
HAS = "cpus:8;mem:2GB;disk:1GB;ports:[31000-31999]"
# The slots of each device of an agent.
DEVICES = (4, 1, 1)
PREEMPTION_GRACE_S = 1.0
START_S = 90.0
HEARTBEAT_S = 0.5
AGENT_TIMEOUT_S = 5.0
LEASE_S = 2.0
SMALL = "24m"
# Queries cost the masters time, too.
ASK_AGAIN_S = 0.05

# The command of a master, up to its flags. Tests start a master with a bug.
MASTER = (sys.executable, "-m", "croupier.master")
AGENT = (sys.executable, "-m", "croupier.agent")


@dataclass(frozen=True, slots=True)
class Layout:
    """The size of a cluster.

    Attributes:
        masters: a single one stores records in SQLite, several in etcd.
        most: tasks that each framework keeps running.
        lease_s: lifetime of the leader lease in etcd.
        has: resources of each agent.
        is_secured: all connections use mutual TLS.
        has_hosts: each daemon has a network namespace of its own, and there are no proxies.
        is_preloaded: masters and agents can have slow syncs and clocks that jump, if there is a
            compiler.
        master, agent: the command that starts one.
    """

    masters: int = 1
    agents: int = 3
    frameworks: int = 2
    etcd: int = 0
    most: int = 8
    lease_s: float = LEASE_S
    has: str = HAS
    is_secured: bool = False
    has_hosts: bool = False
    is_preloaded: bool = True
    master: Sequence[str] = MASTER
    agent: Sequence[str] = AGENT


class Cluster:
    """Every process, proxy and disk of one layout, from `start` to `stop`.

    Attributes:
        folder: holds logs, journals, the ledger and the daemons' files.
        proxies: of each server, by its name; none with hosts.
        network: the hosts of the daemons; None on loopback.
        preload: slows syncs and shifts clocks of masters and agents; None without them.
        certificates: of the daemons; None without TLS.
        disks: small disks, by the daemon whose records are there.
        began_s: when it was started, on the monotonic clock.
    """

    def __init__(self, folder: Path, layout: Layout, seed: int) -> None:
        """Open nothing before `start`."""
        self.folder, self.layout, self._seed = folder, layout, seed
        self.began_s = 0.0
        self.masters: dict[str, Daemon] = {}
        self.agents: dict[str, Daemon] = {}
        self.frameworks: dict[str, Daemon] = {}
        self.etcd: dict[str, Daemon] = {}
        self.proxies: dict[str, Proxy] = {}
        self.network = HostNetwork(random.Random(seed)) if layout.has_hosts else None
        # Drawn together, so that they differ.
        self._free = free_addresses(3 * (layout.masters + layout.etcd))
        self._servers: dict[str, Address] = {}
        self._fronts: dict[str, Address] = {}
        self.disks: dict[str, SmallDisk] = {}
        self.preload: PreloadFaults | None = None
        self.certificates: ClusterCertificates | None = None
        self._channels: dict[tuple[str, int], grpc.aio.Channel] = {}

    @property
    def total(self) -> Resources:
        """Return the resources of all agents together."""
        has = Resources.parse(f"{self.layout.has};gpus:{len(DEVICES)}")
        return total_of(has for _ in self.agents)

    def daemons(self) -> dict[str, Daemon]:
        """Return all daemons, by name."""
        return {**self.etcd, **self.masters, **self.agents, **self.frameworks}

    async def start(self) -> None:
        """Start everything, and wait until agents and frameworks are connected."""
        self.began_s = time.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "control").write_text("drain")
        self.preload = PreloadFaults.build(self.folder) if self.layout.is_preloaded else None
        if self.layout.is_secured:
            self.certificates = ClusterCertificates(self.folder / "tls")
        self._plan_etcd()
        self._plan_masters()
        self._plan_agents()
        self._plan_frameworks()
        if self.network is not None:
            self.network.start()
        for proxy in self.proxies.values():
            await proxy.start()
        for daemon in self.daemons().values():
            daemon.start()
        await self.whole(START_S)

    async def stop(self) -> None:
        """End every process, remove control groups, and unmount the disks."""
        for daemon in reversed(self.daemons().values()):
            if daemon.name in self.agents:
                daemon.resume()
            await asyncio.to_thread(daemon.end)
        for pid in self.strays():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for proxy in self.proxies.values():
            await proxy.stop()
        if self.network is not None:
            self.network.stop()
        for channel in self._channels.values():
            await channel.close()
        for name in self.agents:
            # Groups of an agent that was killed; only its work dir tells where they are.
            with suppress(FileNotFoundError):
                await asyncio.to_thread(remove_groups, self.folder / name)
        for disk in self.disks.values():
            disk.unmount()

    def fronts(self) -> str:
        """Return the addresses at which daemons reach the masters."""
        return ",".join(str(self._fronts[name]) for name in self.masters)

    def control(self, told: str) -> None:
        """Tell the frameworks to `run`, `drain` or `stop`."""
        scratch = self.folder / "control.new"
        scratch.write_text(told)
        scratch.rename(self.folder / "control")

    async def leader(self) -> str | None:
        """Return the name of the master that says it leads; None if none does."""
        for name, daemon in self.masters.items():
            if not daemon.runs:
                continue
            try:
                told = await self._operator(name).GetMaster(pb.GetMasterRequest(), timeout=3)
            except grpc.aio.AioRpcError:
                continue
            if told.leader:
                return name
        return None

    async def operator(self) -> OperatorServiceStub:
        """Return the leader's operator service.

        Raises:
            CroupierError: if none leads.
        """
        name = await self.leader()
        if name is None:
            raise CroupierError("no master leads")
        return self._operator(name)

    async def agent_addresses(self) -> dict[str, str]:
        """Return the HTTP addresses of agents, by name; empty while no master leads."""
        try:
            operator = await self.operator()
            listed = await operator.ListAgents(pb.ListAgentsRequest(), timeout=10)
        except (grpc.aio.AioRpcError, CroupierError):
            return {}
        return {view.agent.hostname: view.agent.http_address for view in listed.agents}

    def fetch(self, address: str, path: str) -> str:
        """Return the page of a daemon at its HTTP address, with or without `http://`.

        Raises:
            OSError: if it does not answer.
        """
        if self.certificates is None:
            return fetch(f"http://{address.removeprefix('http://')}{path}")
        return fetch(f"{address}{path}", self.certificates.https())

    async def whole(self, timeout_s: float) -> None:
        """Wait until all agents and frameworks are connected to a master.

        Daemons that exit meanwhile are started again, if they may end.

        Raises:
            AssertionError: if they are not in time.
        """

        async def is_whole() -> bool:
            for daemon in self.daemons().values():
                if daemon.may_end:
                    daemon.start()
            try:
                operator = await self.operator()
                agents = await operator.ListAgents(pb.ListAgentsRequest(), timeout=5)
                frameworks = await operator.ListFrameworks(pb.ListFrameworksRequest(), timeout=5)
            except (grpc.aio.AioRpcError, CroupierError):
                return False
            here = {view.agent.hostname for view in agents.agents if view.state == "connected"}
            here |= {v.framework.name for v in frameworks.frameworks if v.state == "connected"}
            if here >= {*self.agents, *self.frameworks}:
                return True
            await asyncio.sleep(ASK_AGAIN_S)
            return False

        await eventually(is_whole, timeout_s, "all agents and frameworks are connected")
        for daemon in self.daemons().values():
            daemon.may_end = False

    def pids(self) -> Mapping[int, str]:
        """Return the daemon of each pid."""
        return {daemon.pid: daemon.name for daemon in self.daemons().values() if daemon.runs}

    def strays(self) -> list[int]:
        """Return processes that refer to the folder, apart from daemons and our ancestors."""
        ours = {*self.pids(), *_ancestors(os.getpid())}
        return [pid for pid in processes_with(str(self.folder)) if pid not in ours]

    def _operator(self, master: str) -> OperatorServiceStub:
        certificates = self.certificates
        # A channel keeps the authorities that it was made with.
        key = (master, 0 if certificates is None else certificates.version)
        if key not in self._channels:
            security = None if certificates is None else certificates.operator()
            self._channels[key] = make_channel(self._servers[master], security)
        return OperatorServiceStub(self._channels[key])

    def _plan_etcd(self) -> None:
        if not self.layout.etcd:
            return
        etcd = program("etcd", "etcd-server")
        names = [f"etcd{number}" for number in range(1, self.layout.etcd + 1)]
        for name in names:
            self._add_server(name, 2379)
        peers = {name: self._address(name, 2380) for name in names}
        http = "http" if self.certificates is None else "https"
        together = ",".join(f"{name}={http}://{peers[name]}" for name in names)
        for name in names:
            client = self._servers[name]
            self._add(
                self.etcd, name,
                [str(etcd), "--name", name, "--data-dir", str(self.folder / name),
                 "--listen-client-urls", f"{http}://{client}",
                 "--advertise-client-urls", f"{http}://{client}",
                 "--listen-peer-urls", f"{http}://{peers[name]}",
                 "--initial-advertise-peer-urls", f"{http}://{peers[name]}",
                 "--initial-cluster", together, "--initial-cluster-state", "new",
                 "--log-level", "warn", *self._tls_of_etcd(name)],
            )  # fmt: skip

    def _plan_masters(self) -> None:
        for index in range(self.layout.masters):
            name = f"m{index + 1}"
            self._add_server(name, 5050)
            http = self._address(name, 5080)
            store = self.folder / "store"
            flags = ["--store", f"sqlite:{store / 'master.db'}"]
            if self.layout.etcd:
                etcd = ",".join(str(self._fronts[member]) for member in self.etcd)
                flags = ["--store", f"etcd://{etcd}/chaos", "--advertise", str(self._fronts[name]),
                         "--lease", f"{self.layout.lease_s:g}",
                         *self._tls_for_etcd(name)]  # fmt: skip
            else:
                self._small(name, store)
            self._add(
                self.masters, name,
                [*self._command(self.layout.master, "master", name),
                 "--listen", str(self._servers[name]), "--http", str(http), *flags,
                 *self._tls(name, f"master/{name}"),
                 "--heartbeat", str(HEARTBEAT_S), "--agent-timeout", str(AGENT_TIMEOUT_S),
                 "--offer-lease", "3", "--log-format", "json",
                 # Only reservations preempt.
                 "--preemption", "--starvation-timeout", "7d",
                 "--preemption-grace", str(PREEMPTION_GRACE_S)],
            )  # fmt: skip

    def _plan_agents(self) -> None:
        for number in range(1, self.layout.agents + 1):
            name = f"a{number}"
            work_dir = self.folder / name
            if number == 1:
                self._small(name, work_dir)
            self._add(
                self.agents, name,
                [*self._command(self.layout.agent, "agent", name), "--master", self.fronts(),
                 "--http", str(self._address(name, 0)),
                 "--work-dir", str(work_dir), "--resources", self.layout.has, "--hostname", name,
                 "--devices", str(self._write_devices(name)),
                 *self._tls(name, f"agent/{name}"),
                 "--log-format", "json"],
            )  # fmt: skip

    def _plan_frameworks(self) -> None:
        for number in range(1, self.layout.frameworks + 1):
            name = f"w{number}"
            self._add(
                self.frameworks, name,
                [sys.executable, "-m", "tests.chaos.real.workload", str(self.folder), name,
                 self.fronts(), str(self._seed), str(self.layout.most)],
            )  # fmt: skip

    def _write_devices(self, name: str) -> Path:
        """Write the file that names the devices of an agent."""
        path = self.folder / f"{name}.toml"
        tables = (
            f'[[device]]\nid = "{name}-gpu{number}"\nslots = {slots}\n'
            for number, slots in enumerate(DEVICES)
        )
        path.write_text("".join(tables))
        return path

    def _tls(self, name: str, role: str) -> list[str]:
        """Make certificates of a master or an agent, and return its flags."""
        if self.certificates is None:
            return ["--insecure"] if self.network is not None else []
        self.certificates.add(name, role)
        return self.certificates.flags(name)

    def _tls_of_etcd(self, name: str) -> Sequence[str]:
        if self.certificates is None:
            return ()
        self.certificates.add(name, "")
        return self.certificates.of_etcd(name)

    def _tls_for_etcd(self, name: str) -> Sequence[str]:
        return () if self.certificates is None else self.certificates.for_etcd(name)

    def _command(self, plain: Sequence[str], daemon: str, name: str) -> Sequence[str]:
        """Return the command of a daemon; on a host, it has a witness."""
        if self.network is None:
            return plain
        return (sys.executable, "-m", "tests.chaos.real.witness", daemon, name)

    def _add_server(self, name: str, port: int) -> None:
        """Give a server its address: on its host, or on loopback behind a proxy."""
        self._servers[name] = self._fronts[name] = self._address(name, port)
        if self.network is None:
            self._fronts[name] = self._free.pop()
            self.proxies[name] = Proxy(self._servers[name], self._fronts[name], self.pids)

    def _address(self, name: str, port: int) -> Address:
        """Return an address for a daemon: at `port` of its host, or any free one on loopback."""
        if self.network is not None:
            return Address(self.network.host(name).address, port)
        return self._free.pop() if port else Address("127.0.0.1", 0)

    def _small(self, name: str, folder: Path) -> None:
        """Give a daemon a small disk, or a plain folder where mounting is not permitted."""
        disk = SmallDisk.mount(folder, SMALL)
        if disk is not None:
            self.disks[name] = disk

    def _add(self, daemons: dict[str, Daemon], name: str, argv: Sequence[str]) -> None:
        paths = [os.environ.get("PYTHONPATH", ""), str(REPOSITORY)]
        environment = {"PYTHONPATH": ":".join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}
        ours = daemons is self.masters or daemons is self.agents
        if self.certificates is not None and daemons is self.frameworks:
            self.certificates.add(name, "client/admin")
            environment |= self.certificates.environment(name)
        if self.preload is not None and ours:
            environment |= self.preload.environment(name)
        if self.network is not None:
            argv = self.network.host(name).command(argv)
        daemons[name] = Daemon(name, argv, self.folder / f"{name}.log", environment)


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        pid = parent_of(pid)
