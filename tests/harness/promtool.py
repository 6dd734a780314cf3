"""Prometheus' own judge of metrics, `promtool check metrics`."""

from __future__ import annotations

import subprocess

from tests.harness.debian import program


def check_metrics(text: str) -> None:
    """Let promtool read `text`, what `/metrics` answers.

    Raises:
        AssertionError: if promtool finds fault with it; holds what promtool says.
    """
    done = subprocess.run(
        [str(program("promtool", "prometheus")), "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, f"promtool: {done.stdout}{done.stderr}"
