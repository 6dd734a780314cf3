"""Clusters that pages of the documentation set up, on addresses and in directories of their own.

A page names machines, directories and ports of its reader. Here each machine is a loopback address,
and each directory is below one of the test.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.harness.forked_start.popen import BIN
from tests.harness.page_run import run_page
from tests.harness.shell_blocks import DAEMON, Block

REPO: Final = Path(__file__).resolve().parents[2]
PORTS: Final = (5050, 5051, 5080, 5081)
END_S: Final = 20.0
PAGE_S: Final = 150.0
# Variables of the tests that would hide what a page sets.
_NOT_INHERITED: Final = (
    *("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CROUPIER_MASTER"),
    *("CROUPIER_TASK_USER", "CROUPIER_TASK_USERS"),
)


@dataclass
class DocsCluster:
    """A directory in which pages run, the addresses of their machines, and their daemons.

    Attributes:
        network: the first three parts of the addresses, such as `127.3.1`.
        stands_for: what replaces a name of the page, such as that of a framework.
    """

    folder: Path
    commands: Path
    network: str
    stands_for: dict[str, str] = field(default_factory=dict)
    _daemons: int = 0

    def run(self, page: str, **variables: str) -> str:
        """Run the shell blocks of a page; its daemons go on until `close`."""
        text = (REPO / page).read_text()
        return run_page(text, self.folder, self.env(**variables), PAGE_S, self._rewritten)

    def env(self, **more: str) -> Mapping[str, str]:
        """Return the environment of its shells."""
        kept = {name: text for name, text in os.environ.items() if name not in _NOT_INHERITED}
        return kept | {
            "PATH": os.pathsep.join((str(self.commands), str(BIN), os.environ["PATH"])),
            "HOME": str(self.folder / "home"),
            "DAEMONS": str(self.folder / "daemons"),
            **more,
        }

    def close(self) -> None:
        """End the daemons, and their tasks."""
        pids = self.folder / "daemons/pids"
        sessions = [int(pid) for pid in pids.read_text().split()] if pids.exists() else []
        end_sessions(*sessions)
        pids.unlink(missing_ok=True)

    def _rewritten(self, block: Block) -> str:
        """Return the text of a block for this machine."""
        text = block.text
        for name, value in self.stands_for.items():
            text = re.sub(rf"\b(?:{name})\b", value, text)
        folders = {
            "/etc/croupier": "certs",
            "/var/lib": "var",
            "/run/": "run/",
            "/backup/": "",
            "/tmp/primes": "primes",
        }
        for found, stead in folders.items():
            text = text.replace(found, f"{self.folder}/{stead}")
        text = text.replace("10.0.0.", f"{self.network}.").replace("127.0.0.1", f"{self.network}.1")
        if block.mark != DAEMON:
            return text
        self._daemons += 1
        # What its flags say wins.
        here = f"{self.network}.{self._daemons}"
        settings = {"HTTP": f"{here}:{5080 if 'croupier-master' in text else 5081}"}
        settings |= {"HOSTNAME": f"host{self._daemons + 5}"}
        settings |= {"LISTEN": f"{here}:5050", "ON_STOP": "end", "HEARTBEAT": "0.5"}
        own = self.folder / f"agent-{self._daemons}"
        text = re.sub(rf"{self.folder}/var/croupier/agent\b", str(own), text)
        settings |= {
            "WORK_DIR": str(own),
            "RESOURCES": "cpus:8;mem:16GB;gpus:2;ports:[31000-31999]",
        }
        lines = [f"export CROUPIER_{name}='{value}'\n" for name, value in settings.items()]
        return "".join(lines) + text


@contextmanager
def docs_cluster(folder: Path, commands: Path) -> Iterator[DocsCluster]:
    """Make the directory of a cluster that pages set up; end its daemons at the end."""
    for name in ("home", "var/croupier", "run", "certs"):
        (folder / name).mkdir(parents=True)
    cluster = DocsCluster(folder, commands, _free_network())
    try:
        yield cluster
    finally:
        cluster.close()


def end_sessions(*sessions: int) -> None:
    """Send SIGTERM to all processes of sessions, and wait until they have ended.

    Raises:
        AssertionError: if they do not; they are killed.
    """
    for session in sessions:
        _signal(session, signal.SIGTERM)
    deadline = time.monotonic() + END_S
    while any(_signal(session, 0) for session in sessions):
        if time.monotonic() > deadline:
            for session in sessions:
                _signal(session, signal.SIGKILL)
            raise AssertionError("processes do not end")
        time.sleep(0.05)


def _free_network() -> str:
    """Return a part of the loopback network in which no port of the pages is in use."""
    for number in range(os.getpid(), os.getpid() + 1_000):
        network = f"127.{number // 200 % 200 + 20}.{number % 200 + 1}"
        with suppress(OSError):
            for port in PORTS:
                with socket.socket() as probe:
                    probe.bind((f"{network}.1", port))
            return network
    raise AssertionError("no free network")


def _signal(session: int, number: int) -> bool:
    """Signal the processes of a session; return whether there are any."""
    try:
        os.killpg(session, number)
    except ProcessLookupError:
        return False
    return True
