"""Libraries for Mesos, unmodified, in fixed versions, from PyPI and npm.

They are kept in `.venv/tools` for the next run. Without them the test is skipped with the reason;
in CI it fails.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.harness.debian import KEPT, NoProgram, locked, run_or_say, unavailable

PYTHON = (
    *("avmesos==0.4.2", "mesoshttp==0.4.2", "pymesos==0.3.15"),
    *("addict==2.4.0", "certifi==2025.8.3", "charset-normalizer==3.4.3", "idna==3.10"),
    *("kazoo==2.10.0", "PyJWT==2.10.1", "requests==2.32.5", "six==1.17.0", "urllib3==2.5.0"),
)
# Its parser in C does not build on Python 3.11 and later. Only its modules in Python are taken.
PARSER = "http-parser==0.9.0"
NODE = "mesos-framework@0.5.3"


def python_clients() -> Path:
    """Return a folder with the libraries of PyPI, for PYTHONPATH."""
    try:
        return _made(f"mesos-python-{sys.version_info.minor}", _install_python)
    except NoProgram as reason:
        unavailable(reason)


def node_client() -> Path:
    """Return a folder with the library of npm in `node_modules`."""
    try:
        if not (shutil.which("node") and shutil.which("npm")):
            raise NoProgram("node and npm are not on PATH: the client of npm is not tried")
        return _made("mesos-node", _install_node)
    except NoProgram as reason:
        unavailable(reason)


def _made(name: str, make: Callable[[Path], None]) -> Path:
    whole = KEPT / name
    KEPT.mkdir(parents=True, exist_ok=True)
    with locked(whole.with_suffix(".lock")):
        if not whole.is_dir():
            with tempfile.TemporaryDirectory(dir=KEPT, prefix=f"{name}.") as half:
                tree = Path(half) / "tree"
                tree.mkdir()
                make(tree)
                tree.rename(whole)
    return whole


def _install_python(tree: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run_or_say("pymesos", [*pip, "install", "--no-deps", "--target", str(tree), *PYTHON], "/")
    with tempfile.TemporaryDirectory() as scratch:
        run_or_say("http-parser", [*pip, "download", "--no-deps", "-d", scratch, PARSER], "/")
        (archive,) = Path(scratch).glob("*.tar.gz")
        with tarfile.open(archive) as source:
            source.extractall(scratch, filter="data")
        (parsed,) = Path(scratch).glob("*/http_parser")
        (tree / "http_parser").mkdir()
        for module in parsed.glob("*.py"):
            shutil.copy(module, tree / "http_parser")


def _install_node(tree: Path) -> None:
    (tree / "package.json").write_text(json.dumps({"private": True}))
    npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", NODE]
    run_or_say("mesos-framework", npm, str(tree))
