"""Checks by Prometheus: of metrics, and of alerts on series that a test describes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.harness.debian import program


def check_metrics(text: str) -> None:
    """Check `text`, a response of `/metrics`, with promtool.

    Raises:
        AssertionError: if promtool reports a fault; holds its output.
    """
    _promtool("check", "metrics", text=text)


def check_alerts(rules: Path, tests: Path) -> None:
    """Check a file of alerts, and run a file of tests in the format of `promtool test rules`.

    Raises:
        AssertionError: if a test fails; holds its output.
    """
    _promtool("check", "rules", str(rules))
    _promtool("test", "rules", str(tests))


def _promtool(*words: str, text: str = "") -> None:
    done = subprocess.run(
        [str(program("promtool", "prometheus")), *words],
        input=text,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, f"promtool: {done.stdout}{done.stderr}"
