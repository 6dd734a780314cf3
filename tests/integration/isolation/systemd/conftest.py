"""The units of `deploy/systemd`, started by a real systemd in a guest."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.eventually import eventually
from tests.harness.uml_systemd import UNITS

DEPLOY = Path(__file__).resolve().parents[4] / "deploy/systemd"
BIN = Path(sys.prefix) / "bin"
DAEMONS = ("croupier-master", "croupier-agent")
START_S = 120.0
# The interpreter and the checkout may be anywhere, also where only root can read.
HERE = """[Service]
ExecStart=
ExecStart={program}
ProtectHome=no
PrivateTmp=no
PrivateUsers=no
User=root
Group=root
"""


class Units:
    """Both daemons as units."""

    def run(self, *command: str) -> str:
        """Return what a command prints.

        Raises:
            subprocess.CalledProcessError: if it fails.
        """
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def property(self, daemon: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run("systemctl", "show", "--value", "-p", name, daemon).strip()

    def pid(self, daemon: str) -> int:
        """Return the main process of a unit; 0 if it does not run."""
        return int(self.property(daemon, "MainPID"))

    def journal(self, daemon: str) -> list[tuple[int, dict[str, Any]]]:
        """Return the log lines of a unit, each with the priority that journald has stored."""
        lines = self.run("journalctl", "-o", "json", f"_SYSTEMD_UNIT={daemon}.service")
        entries = [json.loads(line) for line in lines.splitlines()]
        said = [(int(each["PRIORITY"]), str(each["MESSAGE"])) for each in entries]
        return [(priority, json.loads(text)) for priority, text in said if text.startswith("{")]

    def events(self, daemon: str) -> list[str]:
        """Return the names of the events that a unit has logged."""
        return [str(line["event"]) for _, line in self.journal(daemon)]

    async def are_ready(self) -> None:
        """Wait until the master has registered the agent."""
        await eventually(_is_whole, START_S, "the agent is connected")


def _is_whole() -> bool:
    try:
        with urllib.request.urlopen("http://127.0.0.1:5080/api/v1/agents", timeout=5) as answer:
            listed = json.load(answer)
    except OSError:
        return False
    return any(agent["state"] == "connected" for agent in listed["items"])


@pytest.fixture(scope="session")
def installed() -> Iterator[Units]:
    units = Units()
    (settings := Path("/etc/croupier")).mkdir()
    for file in DEPLOY.glob("*.toml"):
        shutil.copy(file, settings)
    for file in DEPLOY.iterdir():
        if file.suffix in (".service", ".slice", ".timer"):
            shutil.copy(file, UNITS)
    for daemon in DAEMONS:
        (drop := UNITS / f"{daemon}.service.d").mkdir()
        (drop / "here.conf").write_text(HERE.format(program=BIN / daemon))
    units.run("systemctl", "daemon-reload")
    units.run("systemctl", "start", *DAEMONS)
    yield units
    units.run("systemctl", "stop", *DAEMONS)


@pytest.fixture
async def units(installed: Units) -> Units:
    await installed.are_ready()
    return installed
