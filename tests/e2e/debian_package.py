"""The Debian package, with each supported Python as the python3 of its machine.

`make deb` builds the package, which takes minutes, and runs this test on it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
MINORS = ("3.11", "3.12", "3.13")
COMPILED = "grpc, re2, cryptography.x509, aiohttp, yaml, google.protobuf"
PROGRAM = f"import sys, {COMPILED}, croupier.master.app, croupier.agent.app; print(sys.prefix)"

pytestmark = pytest.mark.e2e


def package() -> Path:
    found = sorted((REPO / "dist").glob("croupier_*.deb"), key=lambda path: path.stat().st_mtime)
    if not found or shutil.which("dpkg-deb") is None:
        pytest.fail("there is no package in dist/: run make deb")
    return found[-1]


def interpreter(minor: str) -> Path:
    """Return a Python of that minor version, also one that pyenv has installed."""
    installed = sorted(Path.home().glob(f".pyenv/versions/{minor}.*/bin/python3"))
    for each in filter(None, [*map(str, installed), shutil.which(f"python{minor}")]):
        words = [each, "-c", "import sys; print(sys.executable)"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        if done.returncode == 0:
            return Path(os.path.realpath(done.stdout.strip()))
    pytest.skip(f"there is no Python {minor} on this machine")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("deb")
    subprocess.run(["dpkg-deb", "-x", str(package()), str(root)], check=True, timeout=120)
    return root / "usr/lib/croupier"


@pytest.mark.parametrize("minor", MINORS)
def test_one_package_runs_on_every_python(unpacked: Path, minor: str) -> None:
    python = interpreter(minor)
    (unpacked / "bin/python3").unlink()
    (unpacked / "bin/python3").symlink_to(python)
    (unpacked / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    command = [str(unpacked / "bin/python"), "-B", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd="/")
    assert (done.stdout.strip(), done.stderr) == (str(unpacked), "")


def test_the_package_depends_on_no_single_python() -> None:
    words = ["dpkg-deb", "-f", str(package()), "Depends"]
    depends = subprocess.run(words, capture_output=True, text=True, timeout=60).stdout
    assert "python3 (>= 3.11), python3 (<< 3.14)" in depends
