"""Commands of other packages: entry points of the group `croupier.commands`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[3] / "docs/cli.md").read_text()
SECTION = PAGE.partition("## Commands of your own")[2].partition("\n## ")[0]


def install(folder: Path, package: str, points: str, code: str) -> None:
    """Put a package into `folder` as pip does."""
    (folder / f"{package}.py").write_text(code)
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[croupier.commands]\n{points}\n")


def croupier(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
    command = [sys.executable, "-m", "croupier.ctl", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def test_the_example_of_the_documentation_is_a_command(tmp_path: Path) -> None:
    toml, python = re.findall(r"```(?:toml|python)\n(.*?)```", SECTION, re.DOTALL)
    install(tmp_path, "croupier_count", toml.splitlines()[-1].replace('"', ""), python)
    assert "Count agents: croupier count TEXT." in croupier(tmp_path, "--help").stdout
    assert "Part of the id or hostname." in croupier(tmp_path, "count", "--help").stdout
    done = croupier(tmp_path, "--master", "127.0.0.1:1", "count", "a1")
    assert done.returncode == 1
    assert done.stderr.startswith("croupier: cannot reach a master")


def test_commands_that_cannot_be_loaded_fail_alone(tmp_path: Path) -> None:
    reasons = {
        "import nosuch": "ModuleNotFoundError: No module named 'nosuch'",
        "raise SystemExit(3)": "SystemExit: 3",
        "": "has no attribute 'broken'",
        "broken = 7": "is neither a function nor an App",
    }
    for number, code in enumerate(reasons):
        install(tmp_path, f"plugin{number}", f"broken{number} = plugin{number}:broken", code)
    shown = croupier(tmp_path, "--help")
    assert shown.returncode == 0
    for number, why in enumerate(reasons.values()):
        assert why in shown.stdout
        done = croupier(tmp_path, f"broken{number}", "--flag", "word")
        assert done.returncode == 1
        assert f"command broken{number}" in done.stderr
        assert why in done.stderr
    assert croupier(tmp_path, "run", "--help").returncode == 0


def test_a_name_of_two_packages_is_refused(tmp_path: Path) -> None:
    for package in ("one", "two"):
        install(tmp_path, package, f"twice = {package}:twice", "def twice(): pass")
    done = croupier(tmp_path, "twice")
    assert done.returncode == 1
    assert "several packages have a command twice: one, two" in done.stderr


def test_an_unknown_command_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    install(tmp_path, "plugin", "mine = plugin:mine", "def mine(): pass")
    for words in (("nosuch",), ("--json", "nosuch"), ("--nosuch",), ("--master", "m")):
        done = croupier(tmp_path, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("croupier: Unknown ")
        assert done.stderr.count("\n") == 1
    named = croupier(tmp_path, "agentz").stderr
    assert "agents" in named


def test_no_package_replaces_a_command_of_croupier(tmp_path: Path) -> None:
    install(tmp_path, "plugin", "agents = plugin:agents", "def agents():\n    'Mine.'")
    assert "Mine." not in croupier(tmp_path, "--help").stdout
    assert "List agents" in croupier(tmp_path, "agents", "--help").stdout


def test_the_help_of_an_application_imports_no_other() -> None:
    program = (
        "import sys; from croupier.ctl.__main__ import main; main(['run', '--help']);"
        "print([name for name in sys.modules if name.startswith('croupier.apps.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "['croupier.apps.run', 'croupier.apps.run.cli']"
