"""A real cluster on this machine: `croupier local`, with TLS and authentication."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.harness.command import environment

CROUPIER = (sys.executable, "-m", "croupier.ctl")
START_S = 90.0


@dataclass
class RealCluster:
    """A running cluster.

    Attributes:
        master: HOST:PORT of the gRPC of the master.
        url: of its page.
        token: signs in to the page.
        env: of commands; their home holds the credentials.
    """

    process: subprocess.Popen[bytes]
    master: str
    url: str
    token: str
    env: dict[str, str]

    @contextmanager
    def running(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run `croupier run ARGUMENTS`; kill it at the end."""
        argv = (*CROUPIER, "run", "--master", self.master, *command)
        run = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.env
        )
        try:
            yield run
        finally:
            run.kill()
            run.wait(10)

    def kill_master(self) -> None:
        """Kill the master by SIGKILL; `croupier local` starts it again on the same ports."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        for pid in map(int, children.split()):
            if b"croupier.master" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                return
        raise AssertionError("there is no master")


@contextmanager
def real_cluster(directory: Path, agents: int = 3) -> Iterator[RealCluster]:
    """Run a cluster until the end of the block."""
    log = directory / "local.log"
    flags = ("--master-port", "0", "--http-port", "0", "--isolation", "none")
    sizes = ("--agents", str(agents), "--cpus", "4", "--mem", "2GB", "--disk", "4GB")
    argv = (*CROUPIER, "local", *flags, *sizes)
    env = environment(PYTHONUNBUFFERED="1", HOME=str(directory))
    env.pop("XDG_CONFIG_HOME", None)
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT, env=env)
    try:
        text = _ready(process, log)
        master = re.search(r"master +(\S+:\d+)", text)
        url = re.search(r"(https?://[^/\s]+)", text)
        assert master, text
        assert url, text
        show = (*CROUPIER, "page", "--show-token", "--master", master[1])
        token = subprocess.run(
            show, env=env, capture_output=True, text=True, check=True, timeout=60
        )
        yield RealCluster(process, master[1], url[1], token.stdout.strip(), env)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        finally:
            process.kill()


def _ready(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_S
    while "Ctrl-C ends" not in (text := log.read_text()):
        assert process.poll() is None, text
        assert time.monotonic() < deadline, text
        time.sleep(0.05)
    return text
