"""Frameworks of Mesos run unmodified: real clients, with faults in the middle."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest

from croupier.master.core.access_records import TokenKind
from croupier.model.access import Action
from croupier.net.credentials import ClientSecurity
from croupier.net.transport import free_addresses, make_channel
from croupier.v1 import operator_pb2
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.certificates import authority
from tests.harness.cluster import Cluster, real_cluster
from tests.harness.etcd import running_etcd
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT, RawAgent
from tests.harness.mesos_clients.packages import node_client, python_clients
from tests.harness.secured import bearing, secured_master

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]
RESOURCES = "cpus:4;mem:1GB;disk:1GB;ports:[31000-31099]"
PATIENCE_S = 90.0
PYTHON_CLIENTS = ("avmesos", "mesoshttp", "pymesos")


class Client:
    """A client in a process of its own, and its journal."""

    def __init__(self, folder: Path) -> None:
        self.journal, self.log = folder / "journal", folder / "client.log"
        self.hold = folder / "hold"
        self.process: subprocess.Popen[bytes] | None = None

    def start(
        self, library: str, address: str, total: int, *rest: str, scheme: str = "http"
    ) -> None:
        """Start a framework of PyPI's `library`."""
        where = [address] if library == "pymesos" else [library, f"{scheme}://{address}"]
        module = "run_pymesos" if library == "pymesos" else "run_avmesos"
        self.start_module(module, *where, str(total), str(self.journal), *rest)

    def start_module(self, module: str, *words: str) -> None:
        """Start a program beside the libraries of PyPI."""
        command = [sys.executable, "-W", "ignore", "-m", f"tests.harness.mesos_clients.{module}"]
        path = os.pathsep.join([str(python_clients()), str(ROOT)])
        self.run([*command, *words], ROOT, PYTHONPATH=path)

    def run(self, command: list[str], folder: Path, **environment: str) -> None:
        """Run a command."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, **environment},
            )

    def has_ended(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def heard(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """Return the lines of the journal of a kind, with these fields."""
        if not self.journal.exists():
            return []
        lines = [json.loads(line) for line in self.journal.read_text().splitlines()]
        return [
            each
            for each in lines
            if each["kind"] == kind and all(each[name] == value for name, value in fields.items())
        ]

    async def finishes(self, number: int) -> None:
        """Wait until so many tasks have finished."""
        await self.until(lambda: len(self.heard("update", state="TASK_FINISHED")) >= number)

    async def ends(self) -> None:
        """Wait until the client has done all its work and has ended."""
        await self.until(self.has_ended)
        assert self.heard("done"), self.text()[-3000:]

    async def logs(self, words: str, number: int) -> None:
        """Wait until the log has `words` so many times."""
        await self.until(lambda: self.text().count(words) >= number)

    async def until(self, predicate: Callable[[], object]) -> None:
        """Wait for a condition; a failure shows the end of the log."""
        try:
            await eventually(predicate, PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()[-3000:]}") from None

    def text(self) -> str:
        """Return the log."""
        return self.log.read_text(errors="replace")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path)
    yield client
    client.end()


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[dict[str, Client]]:
    """Clients with the libraries of PyPI, which go on until `all_end`."""
    made = {library: Client(tmp_path / library) for library in PYTHON_CLIENTS}
    for client in made.values():
        client.hold.parent.mkdir()
        client.hold.touch()
    yield made
    for client in made.values():
        client.end()


async def all_end(clients: dict[str, Client]) -> None:
    """Let clients end, and wait until they have; each was one framework."""
    for client in clients.values():
        client.hold.unlink()
    for client in clients.values():
        await client.ends()
        assert len({each["framework"] for each in client.heard("subscribed")}) == 1


async def settled(cluster: Cluster) -> None:
    """Wait until nothing is offered or used any more."""
    await eventually(cluster.conserved, PATIENCE_S, what="nothing is used")


async def test_frameworks_outlive_their_master_and_an_agent(
    clients: dict[str, Client], tmp_path: Path
) -> None:
    (at,) = free_addresses(1)
    flags = ("--mesos-listen", str(at))
    async with real_cluster(tmp_path, RESOURCES, flags=flags) as cluster:
        for library, client in clients.items():
            client.start(library, str(at), 6)
        for client in clients.values():
            await client.finishes(3)
            assert not client.heard("error")
        cluster.kill("host0")
        await cluster.start_agent("host0", RESOURCES)
        for client in clients.values():
            await client.finishes(6)
        cluster.kill("master")
        await cluster.start_master(*flags)
        await all_end(clients)
        for client in clients.values():
            assert client.heard("update", state="TASK_KILLED")
            assert len(client.heard("subscribed")) > 1
        await settled(cluster)

        async def none_is_connected() -> bool:
            views = (await cluster.frameworks()).items()
            return not clients.keys() & {name for name, view in views if view.state == "connected"}

        await eventually(none_is_connected, PATIENCE_S)


async def test_the_example_of_npm_runs_its_tasks(client: Client, tmp_path: Path) -> None:
    """Only its task of 10 s is made shorter, and its address changed."""
    folder = node_client()
    (at,) = free_addresses(1)
    example = folder / "node_modules/mesos-framework/examples/commandScheduler.js"
    text = example.read_text()
    text = re.sub(r'"masterUrl": "[^"]*"', f'"masterUrl": "{at.host}"', text)
    text = text.replace('"port": 5050', f'"port": {at.port}').replace("sleep 10;", "sleep 0.3;")
    text = text.replace('require("../index")', 'require("mesos-framework")')
    script = tmp_path / "commandScheduler.js"
    script.write_text(text)
    (tmp_path / "logs").mkdir()
    flags = ("--mesos-listen", str(at))
    async with real_cluster(tmp_path, RESOURCES, flags=flags) as cluster:
        modules = str(folder / "node_modules")
        client.run(["node", str(script)], tmp_path, NODE_PATH=modules)

        await client.logs("TASK_FINISHED", 3)
        # It does not subscribe again after a reset connection, so its master is not killed.
        cluster.kill("host0")
        await cluster.start_agent("host0", RESOURCES)
        await client.logs("TASK_FINISHED", client.text().count("TASK_FINISHED") + 3)


async def test_frameworks_use_tls(clients: dict[str, Client], tmp_path: Path) -> None:
    """pymesos and the client of npm cannot."""
    del clients["pymesos"]
    mine = authority().issue(tmp_path / "tls", "master/m1")
    (at,) = free_addresses(1)
    tls = ("--tls-cert", str(mine.cert), "--tls-key", str(mine.key), "--no-auth")
    cluster = Cluster(tmp_path, ClientSecurity(ca=mine.ca))
    cluster.agent_flags += ("--tls-ca", str(mine.ca))
    try:
        await cluster.start_master("--mesos-listen", str(at), *tls)
        await cluster.start_agent("host0", RESOURCES)
        for library, client in clients.items():
            client.start(library, str(at), 3, scheme="https")
        for client in clients.values():
            await client.finishes(2)
        cluster.kill("master")
        await cluster.start_master("--mesos-listen", str(at), *tls)
        await all_end(clients)
        await settled(cluster)
    finally:
        await cluster.stop()


@pytest.mark.parametrize("library", PYTHON_CLIENTS)
async def test_a_framework_has_a_token(
    library: str, clients: dict[str, Client], tmp_path: Path
) -> None:
    """pymesos sends it as a password, the others in SUBSCRIBE."""
    async with secured_master(tmp_path, mesos_listen=ANY_PORT) as secured:
        secured.allow("client/alice", [Action.REGISTER], "role:*")
        secured.allow("client/alice", [Action.RUN_AS], "user:*")
        agent = bearing(secured.token_for("agent/a1", TokenKind.AGENT))
        async with RawAgent(secured.master.address, agent) as raw:
            await raw.register(agent_id="a1")
            token = secured.token_for("client/alice").text
            clients[library].start(library, str(secured.master.mesos_address), 1, token)
            launch = (await raw.next("launch")).launch
            assert launch.task.task_id == "victim-1"
            (framework,) = secured.state.frameworks.values()
            assert framework.owner == "client/alice"


async def test_a_framework_has_an_executor(client: Client, tmp_path: Path) -> None:
    """Scheduler and executor are of pymesos; data and messages pass both ways."""
    (at, executors) = free_addresses(2)
    flags, own = ("--mesos-listen", str(at)), ("--mesos-listen", str(executors))
    async with real_cluster(tmp_path, flags=flags) as cluster:
        await cluster.start_agent("host0", RESOURCES, *own)
        client.start_module("run_pymesos_executors", str(at), "10", str(client.journal))
        await client.finishes(2)
        assert client.heard("message")
        cluster.kill("host0")
        await cluster.start_agent("host0", RESOURCES, *own)
        await client.finishes(5)
        cluster.kill("master")
        await cluster.start_master(*flags)
        await client.ends()
        # The executor has outlived its agent and the master.
        assert not client.heard("executor_lost")
        await settled(cluster)


async def test_processes_of_pymesos_run_on_agents(client: Client, tmp_path: Path) -> None:
    (at, executors) = free_addresses(2)
    # The library starts its executor by the interpreter that it runs in.
    environment = tmp_path / "environment"
    venv.create(environment)
    (packages,) = environment.glob("lib/*/site-packages")
    (packages / "clients.pth").write_text(f"{python_clients()}\n{ROOT}\n")
    async with real_cluster(tmp_path, flags=("--mesos-listen", str(at))) as cluster:
        await cluster.start_agent("host0", RESOURCES, "--mesos-listen", str(executors))
        python = str(environment / "bin/python")
        module = "tests.harness.mesos_clients.run_pymesos_subprocess"
        command = [python, "-W", "ignore", "-m", module, str(client.journal)]
        client.run(command, tmp_path, MESOS_MASTER=str(at))
        await client.until(client.has_ended)
        assert client.heard("done"), client.text()[-3000:]
        codes = [(each["code"], each["out"]) for each in client.heard("ended")]
        assert codes == [(3, "through an agent"), (-signal.SIGTERM, "")]
        await settled(cluster)


class TwoMasters(Cluster):
    """Two masters, one of which etcd makes the leader, and the gateways of both."""

    def __init__(self, work_dir: Path, store: str) -> None:
        super().__init__(work_dir)
        self._store = store
        self.places = {name: free_addresses(3) for name in ("one", "two")}

    @property
    def master(self) -> str:
        """HOST:PORT of both masters."""
        return ",".join(str(listen) for listen, _, _ in self.places.values())

    def gateway(self, name: str) -> str:
        """HOST:PORT of the gateway of a master."""
        return str(self.places[name][2])

    def begin(self, name: str) -> None:
        """Start a master."""
        listen, http, mesos = map(str, self.places[name])
        self._start(
            name, "croupier.master", "--listen", listen, "--http", http, "--mesos-listen", mesos,
            "--store", self._store, "--lease", "8s",
        )  # fmt: skip

    async def leads(self, name: str) -> None:
        """Wait until a master leads."""
        self.listen = self.places[name][0]
        await self._channel.close()
        self._channel = make_channel(self.listen)
        self.operator = OperatorServiceStub(self._channel)

        async def answers() -> bool:
            try:
                request = operator_pb2.GetMasterRequest()
                return (await self.operator.GetMaster(request, timeout=5)).leader
            except grpc.aio.AioRpcError:
                return False

        await eventually(answers, PATIENCE_S, what=f"{name} leads")


async def is_follower(gateway: str) -> None:
    """Wait until a gateway sends calls to the leader."""

    async def redirects() -> bool:
        url = f"http://{gateway}/api/v1/scheduler"
        async with aiohttp.ClientSession() as http:
            try:
                async with http.get(url, allow_redirects=False) as answer:
                    return answer.status == 307
            except aiohttp.ClientError:
                return False

    await eventually(redirects, PATIENCE_S)


async def test_frameworks_follow_the_leader(clients: dict[str, Client], tmp_path: Path) -> None:
    del clients["mesoshttp"]
    (tmp_path / "etcd").mkdir()
    with running_etcd(tmp_path / "etcd") as etcd:
        masters = TwoMasters(tmp_path, str(etcd.target("mesos")))
        try:
            masters.begin("one")
            await masters.leads("one")
            masters.begin("two")
            await masters.start_agent("host0", RESOURCES)
            await is_follower(masters.gateway("two"))
            for library, client in clients.items():
                client.start(library, masters.gateway("two"), 6)
            for client in clients.values():
                await client.finishes(3)
            masters.kill("one")
            await masters.leads("two")
            # pymesos tries the address of the leader that it was sent to, for ever.
            masters.begin("one")
            await all_end(clients)
            await settled(masters)
        finally:
            await masters.stop()
