"""A real `croupier-agent` process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from croupier.net.address import Address
from tests.harness import agent_defaults  # noqa: F401 - sets the environment of agents
from tests.harness.compiled_shim import place_shim
from tests.harness.eventually import eventually

# For agents of tests that are not about isolation.
UNISOLATED = ("--isolation", "process")


class AgentProcess:
    """An agent that a test starts, signals and ends by its pid."""

    def __init__(
        self,
        master: Address,
        work_dir: Path,
        log: Path,
        resources: str,
        *flags: str,
        isolation: str = UNISOLATED[1],
    ) -> None:
        """Prepare the command; `start` runs it. The log of the agent goes to `log`."""
        self._argv = [
            sys.executable, "-m", "croupier.agent", "--master", str(master),
            "--http", "127.0.0.1:0", "--work-dir", str(work_dir), "--resources", resources,
            "--log-format", "json", "--isolation", isolation, *flags,
        ]  # fmt: skip
        self.work_dir, self.log = work_dir, log
        self.prefix: tuple[str, ...] = ()
        """Prefix of the command, which executes the agent, such as `unshare`."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The pid of the agent."""
        assert self._process is not None
        return self._process.pid

    def start(self, *flags: str) -> None:
        """Start the agent, with additional `flags`."""
        if self._process is None:
            place_shim(self.work_dir)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.prefix, *self._argv, *flags], stdout=log, stderr=log
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self, timeout_s: float = 20.0) -> int:
        """Wait for the end; return the exit code."""
        process = self._process
        assert process is not None
        await eventually(lambda: process.poll() is not None, timeout_s, "the agent ends")
        return process.wait(timeout=0)

    def end(self) -> None:
        """Kill the agent if it still runs."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait(timeout=10)
