"""Files inside wheels that tests read without installing them, such as large sets of schemas.

A wheel is kept in `.venv/tools` for the next run, and its hash is checked.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

from tests.harness.debian import DOWNLOAD_S, KEPT, NoProgram, unavailable


def wheel(pin: str, sha256: str) -> ZipFile:
    """Return the wheel of `name==VERSION`; skip the test, or fail it in CI, without it."""
    path = KEPT / "wheels" / f"{pin}.whl"
    if not path.exists():
        try:
            _download(pin, path)
        except NoProgram as reason:
            unavailable(reason)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found == sha256, f"the wheel of {pin} has the hash {found}"
    return ZipFile(path)


def _download(pin: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", scratch, pin]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoProgram(f"{pin} cannot be fetched: {error}") from error
        found = list(Path(scratch).glob("*.whl"))
        if done.returncode or not found:
            raise NoProgram(f"{pin} cannot be fetched: {done.stderr[-300:]}")
        found[0].rename(path)
