"""The check of metrics by Prometheus, `promtool check metrics`."""

from __future__ import annotations

import subprocess

from tests.harness.debian import program


def check_metrics(text: str) -> None:
    """Check `text`, a response of `/metrics`, with promtool.

    Raises:
        AssertionError: if promtool reports a fault; holds its output.
    """
    done = subprocess.run(
        [str(program("promtool", "prometheus")), "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, f"promtool: {done.stdout}{done.stderr}"
