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


def check_rules(*files: Path) -> None:
    """Check files of alerts or recording rules.

    Raises:
        AssertionError: if one has a fault; holds promtool's output.
    """
    _promtool("check", "rules", *map(str, files))


def check_config(file: Path) -> None:
    """Check a configuration of Prometheus, without the files that it names.

    Raises:
        AssertionError: if it has a fault; holds promtool's output.
    """
    _promtool("check", "config", "--syntax-only", str(file))


def run_rule_tests(tests: Path) -> None:
    """Run a file of tests in the format of `promtool test rules`.

    Raises:
        AssertionError: if a test fails; holds its output.
    """
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
