"""Programs that tests need, unpacked from Debian packages without installing them.

A program is taken from PATH, from `.venv/tools` of an earlier run, or from the package. Without it
the test is skipped with the reason. In CI it fails, because a check that never runs proves nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

KEPT = Path(__file__).resolve().parents[2] / ".venv/tools"
DOWNLOAD_S = 90


class NoProgram(Exception):
    """The program is not available; the message says why."""


def program(name: str, package: str) -> Path:
    """Return the path of the program; skip the test, or fail it in CI, without it."""
    try:
        return found(name) or downloaded(name, package)
    except NoProgram as reason:
        if os.environ.get("CI"):
            pytest.fail(str(reason))
        pytest.skip(str(reason))


def found(name: str) -> Path | None:
    """Return the path of a program that is already present."""
    on_path = shutil.which(name)
    if on_path:
        return Path(on_path)
    kept = KEPT / name
    return kept if os.access(kept, os.X_OK) else None


def downloaded(name: str, package: str) -> Path:
    """Unpack the program from Debian's `package` and keep it for the next run.

    Raises:
        NoProgram: if this is not Debian, or the package cannot be downloaded.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise NoProgram(f"{name} is not on PATH, and there is no apt-get to fetch it with")
    with tempfile.TemporaryDirectory() as scratch:
        archive = archive_of(name, package, Path(scratch))
        run_or_say(name, ["dpkg-deb", "-x", str(archive), "."], scratch)
        KEPT.mkdir(parents=True, exist_ok=True)
        # Rename it into place: two test processes may download it at once.
        half = KEPT / f"{name}.{os.getpid()}"
        shutil.copy2(Path(scratch) / "usr/bin" / name, half)
        half.rename(KEPT / name)
    return KEPT / name


def archive_of(name: str, package: str, scratch: Path) -> Path:
    """Download Debian's `package` into `scratch`.

    Raises:
        NoProgram: if that fails.
    """
    # apt drops root for the download and must be able to write there.
    scratch.chmod(0o777)
    download = ["apt-get", "download", package]
    try:
        run_or_say(name, download, str(scratch))
    except NoProgram:
        if os.geteuid() != 0:
            raise
        run_or_say(name, ["apt-get", "update", "--quiet"], str(scratch))
        run_or_say(name, download, str(scratch))
    return next(scratch.glob(f"{package}_*.deb"))


def run_or_say(name: str, command: list[str], directory: str) -> None:
    """Run `command` in `directory`.

    Raises:
        NoProgram: if it fails or takes too long.
    """
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=DOWNLOAD_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoProgram(f"{name} cannot be fetched: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise NoProgram(f"{name} cannot be fetched: {' '.join(command[:2])}: {last}")
