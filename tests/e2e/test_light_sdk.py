"""A framework in an environment with grpcio and protobuf, without the daemons' packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.harness.real_local import running_local

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

REPO = Path(__file__).resolve().parents[2]

# Runs the program that its argument names, with the daemons' packages unimportable.
RUNNER = """
import runpy, sys
from importlib.abc import MetaPathFinder

BLOCKED = "aiohttp cyclopts prometheus_client re2 rich sortedcontainers structlog".split()

class Blocker(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocker())
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_readme_framework_runs_without_the_packages_of_daemons(tmp_path: Path) -> None:
    text = (REPO / "framework_sdk" / "README.md").read_text()
    (tmp_path / "hello.py").write_text(text.partition("```python\n")[2].partition("```")[0])
    with running_local(tmp_path, "--agents", "1") as local:
        done = local.run(sys.executable, "-W", "error", "-c", RUNNER, "hello.py", timeout_s=30)
    assert (done.returncode, done.stderr) == (0, "")
    states = [line.split() for line in done.stdout.splitlines()]
    assert {len(words) for words in states} == {2}, "stdout has only the framework's output"
    assert sorted(state for _, state in states if state == "FINISHED") == ["FINISHED"] * 5
    assert {state for _, state in states} <= {"STARTING", "RUNNING", "FINISHED"}
