"""The scripts of the Debian package: what they tell, kill and remove, below a root of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "deploy/debian"


def run(script: str, word: str, root: Path) -> str:
    """Run a script of the package as dpkg does with another root; return what it tells."""
    env = os.environ | {"DPKG_ROOT": str(root)}
    command = ["sh", str(SCRIPTS / script), word]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=env)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    path = tmp_path / "var/lib/croupier/agent/tasks/F1/t1"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def task(sandbox: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"], cwd=sandbox)
    yield process
    process.kill()
    process.wait(timeout=10)


def test_removal_tells_of_tasks_and_purge_kills_them(
    tmp_path: Path, task: subprocess.Popen[bytes]
) -> None:
    assert "croupier: 1 processes of tasks run on" in run("prerm", "remove", tmp_path)
    assert run("postrm", "remove", tmp_path) == ""
    assert task.poll() is None
    assert run("postrm", "purge", tmp_path) == ""
    assert task.wait(timeout=10) == -9
    assert not (tmp_path / "var/lib/croupier").exists()


def test_purge_leaves_and_names_what_cannot_be_made_again(tmp_path: Path, sandbox: Path) -> None:
    state = tmp_path / "var/lib/croupier"
    for name in ("master/master.db", "certs/ca.key", "backup/.keep"):
        (state / name).parent.mkdir()
        (state / name).write_text("x")
    (state / "backup/.keep").unlink()
    assert run("prerm", "remove", tmp_path) == ""
    told = run("postrm", "purge", tmp_path).splitlines()
    assert [line.split()[1] for line in told] == [str(state / "certs"), str(state / "master")]
    assert sorted(path.name for path in state.iterdir()) == ["certs", "master"]
    assert not sandbox.exists()


def test_an_upgrade_says_and_removes_nothing(tmp_path: Path, task: subprocess.Popen[bytes]) -> None:
    assert run("prerm", "upgrade", tmp_path) == run("postrm", "upgrade", tmp_path) == ""
    assert task.poll() is None
