"""A real cluster: daemons as separate processes, on free ports, ended by pid."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from croupier.agent.recover import clean_up
from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity
from croupier.net.transport import free_addresses, make_channel
from croupier.v1 import operator_pb2
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness import agent_defaults  # noqa: F401 - sets the environment of agents
from tests.harness.agent_process import UNISOLATED
from tests.harness.compiled_shim import place_shim
from tests.harness.eventually import eventually

START_S = 60.0


class Cluster:
    """A master and agents; tests add the frameworks."""

    def __init__(self, work_dir: Path, security: ClientSecurity | None = None) -> None:
        """`security` is of the operator's connection."""
        self.work_dir = work_dir
        self.listen, self.http = free_addresses(2)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        # Environment of daemons that are started next; None for that of the tests.
        self.environment: Mapping[str, str] | None = None
        # Flags of all agents that are started next.
        self.agent_flags: tuple[str, ...] = UNISOLATED
        self._channel: grpc.aio.Channel = make_channel(self.listen, security)
        self.operator = OperatorServiceStub(self._channel)

    @property
    def master(self) -> str:
        """HOST:PORT of the master."""
        return str(self.listen)

    async def start_master(self, *flags: str) -> None:
        """Start the master and wait until it answers."""
        self.begin_master(*flags)

        async def answers() -> bool:
            self.check_running()
            try:
                await self.operator.GetMaster(operator_pb2.GetMasterRequest(), timeout=5)
            except grpc.aio.AioRpcError:
                return False
            return True

        # The channel may not have noticed yet that an earlier master is gone.
        await eventually(answers, START_S, what="the master answers")

    def begin_master(self, *flags: str) -> None:
        """Start the master without waiting; it may refuse to serve."""
        self._start(
            "master", "croupier.master", "--listen", str(self.listen), "--http", str(self.http),
            "--store", f"sqlite:{self.work_dir / 'master.db'}", *flags,
        )  # fmt: skip

    async def start_agent(
        self, name: str, resources: str, *flags: str, on_stop: str = "end"
    ) -> None:
        """Start an agent and wait until it is registered."""
        place_shim(self.work_dir / name)
        self._start(
            name, "croupier.agent", "--master", self.master, "--http", "127.0.0.1:0",
            "--work-dir", str(self.work_dir / name), "--hostname", name,
            "--resources", resources, "--on-stop", on_stop, *self.agent_flags, *flags,
        )  # fmt: skip

        async def is_connected() -> bool:
            self.check_running()
            states = {view.agent.hostname: view.state for view in await self.agents()}
            return states.get(name) == "connected"

        await eventually(is_connected, START_S, what=f"agent {name} is connected")

    async def agents(self) -> list[operator_pb2.AgentView]:
        listed = await self.operator.ListAgents(operator_pb2.ListAgentsRequest(), timeout=10)
        return list(listed.agents)

    async def frameworks(self) -> dict[str, operator_pb2.FrameworkView]:
        """Return the frameworks by name."""
        request = operator_pb2.ListFrameworksRequest()
        listed = await self.operator.ListFrameworks(request, timeout=10)
        return {view.framework.name: view for view in listed.frameworks}

    async def running(self) -> dict[str, int]:
        """Return the number of unfinished tasks of each framework name."""
        return {name: view.tasks for name, view in (await self.frameworks()).items()}

    async def shares(self) -> dict[str, float]:
        """Return the dominant share, offered and used, of each framework name."""
        views = await self.frameworks()
        return {name: round(view.share_ppm / 1e6, 3) for name, view in views.items()}

    async def conserved(self) -> bool:
        """Return whether no agent has used or offered resources."""
        views = await self.agents()
        return not any(view.used.ByteSize() or view.offered.ByteSize() for view in views)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Signal a daemon, wait for its end, and return its exit code."""
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(timeout=60)

    def log(self, name: str) -> str:
        """Return the log of a daemon; empty if a test has replaced it by a device."""
        path = self.work_dir / f"{name}.log"
        return path.read_text(errors="replace") if path.is_file() else ""

    def check_running(self) -> None:
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name} ended: {self.log(name)[-2000:]}"

    def metrics(self, address: Address) -> str:
        return fetch(f"http://{address}/metrics")

    async def stop(self) -> None:
        await self._channel.close()
        for name in reversed(list(self.processes)):
            process = self.processes[name]
            process.terminate()
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for log in self.work_dir.glob("*/checkpoint.log"):
            await clean_up(log.parent)

    def _start(self, name: str, module: str, *flags: str) -> None:
        with (self.work_dir / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", module, *flags, "--log-format", "json"],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.work_dir,
                env=self.environment,
            )


@asynccontextmanager
async def real_cluster(
    work_dir: Path, *agents: str, flags: tuple[str, ...] = ()
) -> AsyncIterator[Cluster]:
    """Run a master, and agents `host0`, `host1`, ... with the given resources."""
    cluster = Cluster(work_dir)
    try:
        await cluster.start_master(*flags)
        for number, resources in enumerate(agents):
            await cluster.start_agent(f"host{number}", resources)
        yield cluster
        cluster.check_running()
    finally:
        await cluster.stop()


def fetch(url: str, context: ssl.SSLContext | None = None) -> str:
    """Return the body of a page; `context` is for HTTPS."""
    with urllib.request.urlopen(url, timeout=10, context=context) as response:
        body: bytes = response.read()
        return body.decode()


def log_events(text: str) -> list[dict[str, Any]]:
    """Return the lines of a JSON log; one that is being written is left out."""
    whole = text[: text.rfind("\n") + 1].splitlines()
    return [json.loads(line) for line in whole if line.startswith("{")]


def processes_with(marker: str) -> list[int]:
    """Return the pids of processes whose command line or environment contains `marker`.

    This process and the shims of tasks are left out; shims carry their tasks' commands.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes()
            searched = words + (entry / "environ").read_bytes()
        except OSError:
            continue
        if marker.encode() in searched and not _is_shim(words.split(b"\0")):
            found.append(int(entry.name))
    return found


def _is_shim(words: list[bytes]) -> bool:
    return b"/shim-" in words[0]
