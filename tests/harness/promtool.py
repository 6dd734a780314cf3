"""Prometheus' own judge of metrics, `promtool check metrics`.

Taken from PATH, or from `.venv/tools` where an earlier run put it, or out of Debian's
package, which is unpacked and not installed. Where there is none the test is skipped
and says why; in CI it fails, because a check that never runs is none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

KEPT = Path(__file__).resolve().parents[2] / ".venv/tools/promtool"
DOWNLOAD_S = 90


class NoPromtool(Exception):
    """There is no promtool here and none can be had; says why."""


def check_metrics(text: str) -> None:
    """Let promtool read `text`, what `/metrics` answers.

    Raises:
        AssertionError: if promtool finds fault with it; holds what promtool says.
    """
    done = subprocess.run(
        [str(promtool()), "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, f"promtool: {done.stdout}{done.stderr}"


def promtool() -> Path:
    """Where promtool is. Skips the test if it cannot be had, or fails it in CI."""
    try:
        return found() or downloaded()
    except NoPromtool as reason:
        if os.environ.get("CI"):
            pytest.fail(str(reason))
        pytest.skip(str(reason))


def found() -> Path | None:
    """A promtool that is there already."""
    on_path = shutil.which("promtool")
    if on_path:
        return Path(on_path)
    return KEPT if os.access(KEPT, os.X_OK) else None


def downloaded() -> Path:
    """Promtool out of Debian's package, kept for the next time.

    Raises:
        NoPromtool: if this is no Debian, or its package cannot be reached.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise NoPromtool("promtool is not on PATH, and there is no apt-get to fetch it with")
    with tempfile.TemporaryDirectory() as scratch:
        run_or_say(["dpkg-deb", "-x", str(package(Path(scratch))), "."], scratch)
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place: two test processes may be here at once.
        half = KEPT.with_suffix(f".{os.getpid()}")
        shutil.copy2(Path(scratch) / "usr/bin/promtool", half)
        half.rename(KEPT)
    return KEPT


def package(scratch: Path) -> Path:
    """Debian's `prometheus`, downloaded into `scratch`.

    Raises:
        NoPromtool: if it cannot be.
    """
    # apt drops root for the download and must be able to write there.
    scratch.chmod(0o777)
    download = ["apt-get", "download", "prometheus"]
    try:
        run_or_say(download, str(scratch))
    except NoPromtool:
        if os.geteuid() != 0:
            raise
        run_or_say(["apt-get", "update", "--quiet"], str(scratch))
        run_or_say(download, str(scratch))
    return next(scratch.glob("prometheus_*.deb"))


def run_or_say(command: list[str], directory: str) -> None:
    """Run `command` in `directory`.

    Raises:
        NoPromtool: if it fails or takes too long.
    """
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=DOWNLOAD_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoPromtool(f"promtool cannot be fetched: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise NoPromtool(f"promtool cannot be fetched: {' '.join(command[:2])}: {last}")
