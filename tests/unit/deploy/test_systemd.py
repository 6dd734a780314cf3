"""The systemd units: systemd understands every line, and the stated exposure holds."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from croupier.process.cli import PREFIX
from croupier.process.flag_variables import FLAG_VARIABLES
from tests.harness.debian import program

REPO = Path(__file__).resolve().parents[3]
UNITS = REPO / "deploy/systemd"
# Units of systemd that ours refer to.
OTHERS = (
    "basic", "multi-user", "network-online", "shutdown", "sysinit", "time-sync", "timers",
)  # fmt: skip
# Known since systemd 254.
NEW_KEY = "Unknown key 'DelegateSubgroup'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the units, in which the programs are found."""
    folder = tmp_path_factory.mktemp("units")
    for name in OTHERS:
        (folder / f"{name}.target").write_text(f"[Unit]\nDescription={name}\n")
    for unit in sorted(UNITS.glob("*.service")) + sorted(UNITS.glob("*.timer")):
        text = re.sub(
            r"^ExecStart=croupier[-\w]*",
            "ExecStart=/bin/true",
            unit.read_text(),
            flags=re.MULTILINE,
        )
        (folder / unit.name).write_text(text)
    return folder


def analyze(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(program("systemd-analyze", "systemd")), *words]
    env = os.environ | {"SYSTEMD_UNIT_PATH": str(folder), "SYSTEMD_LOG_TIME": "0"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)


def test_systemd_knows_every_setting(folder: Path) -> None:
    units = [str(unit) for unit in folder.glob("croupier-*")]
    done = analyze(folder, "verify", "--man=no", *units)
    complaints = [line for line in done.stderr.splitlines() if NEW_KEY not in line]
    assert (complaints, done.returncode) == ([], 0)


@pytest.mark.parametrize("name", ["master", "agent"])
def test_a_daemon_starts_again_however_it_ended_and_reloads(name: str) -> None:
    lines = (UNITS / f"croupier-{name}.service").read_text().splitlines()
    assert "Restart=always" in lines
    assert "ExecReload=/bin/kill -HUP $MAINPID" in lines


@pytest.mark.parametrize(
    ("unit", "most"), [("master", 1.5), ("backup", 1.5), ("certs", 6.0), ("agent", 8.3)]
)
def test_the_exposure_is_as_the_documentation_says(folder: Path, unit: str, most: float) -> None:
    name = f"croupier-{unit}.service"
    done = analyze(folder, "security", "--offline=true", "--no-pager", str(folder / name))
    found = re.search(rf"exposure level for {name}: ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= most
    assert f"`{name}`: {most}" in (REPO / "docs/deployment.md").read_text()


@pytest.mark.parametrize("name", ["master", "agent"])
def test_the_example_settings_are_settings(name: str) -> None:
    text = (UNITS / f"{name}.toml").read_text()
    given = tomllib.loads(text)[f"croupier-{name}"]
    commented = re.findall(r"^# ([a-z_]+) = ", text, flags=re.MULTILINE)
    assert {f"{PREFIX}{each.upper()}" for each in (*given, *commented)} <= FLAG_VARIABLES
