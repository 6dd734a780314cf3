"""The systems under test: Croupier, Ray and HyperQueue, each in processes of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

from croupier.net.transport import free_addresses
from tests.bench.tasks.machine import descendants
from tests.harness import agent_defaults  # noqa: F401 - sets the environment of agents
from tests.harness.compiled_shim import place_shim

REPOSITORY = Path(__file__).parents[3]
PEERS_DIR = Path(os.environ.get("PEERS_DIR", Path(tempfile.gettempdir()) / "peers"))
# Isolates nothing, as the others do.
ISOLATION = os.environ.get("ISOLATION", "none")
END_S = 10.0
Words = tuple[str, ...]


class Client:
    """A client process of a system; see `client.py`."""

    def __init__(
        self,
        python: str,
        log: Path,
        module: str,
        *words: str,
        prefix: Words = ("-m",),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it, and wait until it is connected."""
        given = os.environ if environment is None else environment
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [python, *prefix, f"tests.bench.tasks.{module}", *words],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                cwd=REPOSITORY, env={**given, "RAY_USAGE_STATS_ENABLED": "0"},
            )  # fmt: skip
        self._log = log
        self._answer()

    def run(self, count: int) -> None:
        """Run tasks; return when all have ended."""
        self._ask({"run": count})

    def latencies(self, count: int, pause_s: float) -> list[float]:
        """Run one task `count` times; return the seconds of each."""
        seconds = self._ask({"one": count, "pause_s": pause_s})["seconds"]
        assert isinstance(seconds, list)
        return seconds

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_S)
        self.process.kill()
        self.process.wait()

    def _ask(self, order: Mapping[str, object]) -> dict[str, object]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, object]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the client ended: {self._log.read_text()[-2000:]}"
        answer: dict[str, object] = json.loads(line)
        return answer


@dataclass(frozen=True, slots=True)
class System:
    """A running system.

    Attributes:
        pids: the processes of interest, by role.
        http: where daemons serve metrics, by role.
    """

    client: Client
    pids: Mapping[str, int]
    http: Mapping[str, str]


@contextmanager
def croupier(slots: int, way: str = "offers", prefix: Words = ("-m",)) -> Iterator[System]:
    """Run a master (SQLite, durable) and an agent on loopback, and a client that runs tasks `way`.

    `prefix` is how Python runs a module.
    """
    with _directory("croupier") as directory:
        listen, master_http, agent_http = map(str, free_addresses(3))
        with redirect_stdout(sys.stderr):
            place_shim(directory / "agent")
        daemons = {
            "master": _daemon(
                directory / "master.log", *prefix, "croupier.master", "--listen", listen,
                "--http", master_http, "--store", f"sqlite:{directory / 'master.db'}",
            ),
            "agent": _daemon(
                directory / "agent.log", *prefix, "croupier.agent", "--master", listen,
                "--http", agent_http, "--work-dir", str(directory / "agent"), "--on-stop", "end",
                "--isolation", ISOLATION, "--resources", f"cpus:{slots};mem:{slots}GB;disk:10GB",
            ),
        }  # fmt: skip
        where = {"master": master_http, "agent": agent_http}
        try:
            client = Client(
                sys.executable,
                directory / "client.log",
                "client_croupier",
                listen,
                way,
                prefix=prefix,
            )
            pids = {role: daemon.pid for role, daemon in daemons.items()}
            try:
                yield System(client, {**pids, "client": client.process.pid}, where)
            finally:
                client.close()
        finally:
            _end(reversed(daemons.values()))


@contextmanager
def ray(slots: int) -> Iterator[System]:
    """Run Ray's head on loopback."""
    python = _peer_python("ray")
    with _directory("ray") as directory:
        # Ray's workers take ports below that.
        port = next(each.port for each in free_addresses(50) if each.port >= 20_000)
        command = [
            str(python.with_name("ray")), "start", "--head", "--node-ip-address=127.0.0.1",
            f"--port={port}", "--include-dashboard=false", f"--temp-dir={directory}",
            f"--num-cpus={slots}", f"--memory={8 << 30}", "--object-store-memory=300000000",
            "--disable-usage-stats",
        ]  # fmt: skip
        before = set(descendants(os.getpid()))
        try:
            subprocess.run(command, check=True, stdout=sys.stderr, timeout=120)
            log_path = directory / "client.log"
            client = Client(str(python), log_path, "client_ray", f"127.0.0.1:{port}")
            try:
                yield System(client, {"client": client.process.pid}, {})
            finally:
                client.close()
        finally:
            _kill(set(descendants(os.getpid())) - before)


@contextmanager
def hyperqueue(slots: int) -> Iterator[System]:
    """Run HyperQueue's server and worker."""
    python = str(_peer_python("hq"))
    with _directory("hq") as directory:
        files, program = str(directory / "server"), "client_hyperqueue"
        server = Client(python, directory / "server.log", program, "serve", files, str(slots))
        try:
            client = Client(python, directory / "client.log", program, "run", files)
            try:
                yield System(
                    client, {"server": server.process.pid, "client": client.process.pid}, {}
                )
            finally:
                client.close()
        finally:
            server.process.kill()
            server.process.wait()


def missing_peer(name: str) -> str:
    """Return why a peer cannot be run, or an empty text."""
    python = PEERS_DIR / "venv" / name / "bin" / "python"
    return "" if python.exists() else f"{python} does not exist (PEERS_DIR names its directory)"


def _peer_python(name: str) -> Path:
    return PEERS_DIR / "venv" / name / "bin" / "python"


def _daemon(log: Path, *words: str) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, *words], stdout=output, stderr=output, cwd=REPOSITORY
        )


def _end(daemons: Iterator[subprocess.Popen[bytes]]) -> None:
    for daemon in daemons:
        daemon.terminate()
        with suppress(subprocess.TimeoutExpired):
            daemon.wait(END_S)
        daemon.kill()
        daemon.wait()


def _kill(pids: set[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + END_S
    while pids & set(descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


@contextmanager
def _directory(name: str) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
