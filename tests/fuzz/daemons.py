"""The processes of a run: daemons under attack and honest peers, all on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from croupier.net.address import Address
from croupier.net.transport import free_addresses
from tests.fuzz.http_attack import Route
from tests.harness import agent_defaults  # noqa: F401 - sets the environment of agents

ROOT: Final = Path(__file__).resolve().parents[2]
END_S: Final = 20.0
# Times with which nothing of an honest peer expires while the machine is busy.
_PATIENT: Final = ("--agent-timeout", "75s")


class Daemon:
    """A daemon process.

    Attributes:
        name: `master` or `agent`.
        log: the file with its output.
        steps: the file with its long steps.
        peak_kib: the largest resident size seen.
    """

    def __init__(self, name: str, folder: Path, *flags: str, prefix: tuple[str, ...] = ()) -> None:
        self.name = name
        self.log, self.steps = folder / f"{name}.log", folder / f"{name}.steps"
        self.steps.touch()
        words = [
            *prefix, sys.executable, "-m", "tests.fuzz.daemon", str(self.steps), name, *flags,
            "--log-format", "json",
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=ROOT,
                env={**os.environ, "CROUPIER_PARENT": str(os.getpid()), "PYTHONFAULTHANDLER": "1"},
            )  # fmt: skip
        self.peak_kib = 0

    @property
    def routes(self) -> tuple[int, list[Route]] | None:
        """The port and routes of its HTTP server; None before it listens."""
        return self._noted(".routes")

    @property
    def gateway(self) -> tuple[int, list[Route]] | None:
        """The port and routes of its gateway for Mesos; None before it listens, or without one."""
        return self._noted(".gateway")

    def _noted(self, suffix: str) -> tuple[int, list[Route]] | None:
        try:
            found = json.loads(self.steps.with_suffix(suffix).read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return found["port"], [(method, path) for method, path in found["routes"]]

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def end(self) -> str:
        """How the process ended."""
        return f"exit code {self._process.returncode}"

    def measure(self) -> None:
        """Note the resident size."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                self.peak_kib = max(self.peak_kib, int(line.split()[1]))

    def stop(self) -> int:
        """End the daemon in order; return its exit code."""
        if self.is_alive:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return -signal.SIGKILL


class Honest:
    """The process of the honest peers."""

    def __init__(self, master: Address, folder: Path, *, has_auth: bool) -> None:
        """Connect to `master`; with `has_auth` each peer has the token of its party."""
        words = [str(folder)] if has_auth else []
        self.log = folder / "honest.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.honest", str(master), *words],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=ROOT, text=True,
            )  # fmt: skip

    def phase(self) -> dict[str, list[float]]:
        """End a phase; return its latencies."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("next\n")
        self._process.stdin.flush()
        found: dict[str, list[float]] = json.loads(self._process.stdout.readline())
        return found

    def end(self) -> dict[str, Any]:
        """End the peers; return what was lost, and the number of tasks."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        assert self._process.stdout is not None
        with self._process.stdout as out:
            text = out.read()
        self._process.wait(END_S)
        if not text:
            return {"lost": [f"the honest peers ended: {self.log.read_text()[-2000:]}"], "tasks": 0}
        found: dict[str, Any] = json.loads(text.splitlines()[-1])
        return found


def start_agent(folder: Path, master: Address, *flags: str) -> Daemon:
    """Start an agent of a false master."""
    return Daemon(
        "agent", folder, "--master", str(master), "--http", "127.0.0.1:0",
        "--work-dir", str(folder / "agent"), "--resources", "cpus:64;mem:64GB;disk:1GB",
        "--hostname", "fuzzed", "--on-stop", "end", *flags,
    )  # fmt: skip


def start_master(folder: Path, *flags: str) -> tuple[Daemon, Address]:
    """Start a master; return it with its address of gRPC."""
    (listen,) = free_addresses(1)
    daemon = Daemon(
        "master", folder, "--listen", str(listen), "--http", "127.0.0.1:0",
        "--mesos-listen", "127.0.0.1:0",
        "--store", f"sqlite:{folder / 'master.db'}", "--event-log", str(folder / "events.log"),
        "--secrets-key-file", str(folder / "secrets.key"),
        *_PATIENT, *flags,
    )  # fmt: skip
    return daemon, listen
