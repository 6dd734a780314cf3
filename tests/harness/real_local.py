"""A real `croupier local`, and the `croupier` command against it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from croupier.agent.isolation.cgroup.isolator import remove_groups
from croupier.net.address import Address
from croupier.net.credential_search import CredentialFlags, find_credentials
from croupier.net.credentials import ClientSecurity
from croupier.net.transport import free_addresses
from tests.harness.agent_defaults import LOCAL_FLAGS
from tests.harness.cluster import processes_with

BIN = Path(sys.executable).parent
READY_S = 90.0


@dataclass
class Local:
    """A running `croupier local`."""

    process: subprocess.Popen[str]
    master: str
    work_dir: Path
    bin_dir: Path

    def croupier(self, *words: str, timeout_s: float = 150) -> subprocess.CompletedProcess[str]:
        """Run the `croupier` command against it."""
        return self.run(str(self.bin_dir / "croupier"), *words, timeout_s=timeout_s)

    def run(self, *command: str, timeout_s: float = 150) -> subprocess.CompletedProcess[str]:
        """Run any program that finds the master in its environment."""
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={**os.environ, "CROUPIER_MASTER": self.master},
            stdin=subprocess.DEVNULL,
            cwd=self.work_dir,
        )

    @property
    def security(self) -> ClientSecurity:
        """The credentials of its user."""
        return find_credentials(CredentialFlags(), (Address.parse(self.master),)).security

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal and wait until it has ended."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=60)

    def leftovers(self) -> list[int]:
        """Return the processes that name its work directory: daemons, shims, tasks."""
        return processes_with(str(self.work_dir / "cluster"))


@contextmanager
def running_local(work_dir: Path, *flags: str, bin_dir: Path = BIN) -> Iterator[Local]:
    """Run `croupier local` on free ports; yield it once it is ready."""
    listen, http = free_addresses(2)
    process = subprocess.Popen(
        [
            str(bin_dir / "croupier"), "local", "--master-port", str(listen.port),
            "--http-port", str(http.port), "--work-dir", str(work_dir / "cluster"),
            *LOCAL_FLAGS, *flags,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    local = Local(process, str(listen), work_dir, bin_dir)
    try:
        wait_until_ready(process)
        yield local
    finally:
        local.end()
        assert process.stdout is not None
        process.stdout.close()
        for agent in (work_dir / "cluster").glob("agent-*/"):
            # Groups of an agent that was killed.
            remove_groups(agent)


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    """Read its output until it is ready; it gives up by itself after 30 s."""
    assert process.stdout is not None
    deadline = time.monotonic() + READY_S
    said: list[str] = []
    while time.monotonic() < deadline:
        line = process.stdout.readline()
        said.append(line)
        if "Ctrl-C ends everything" in line:
            return
        assert line, f"croupier local ended: {''.join(said)}"
    raise AssertionError(f"croupier local is not ready: {''.join(said)}")
