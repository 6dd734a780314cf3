"""`ClusterExecutor` on a real cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.real_local import Local, running_local

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    with running_local(tmp_path_factory.mktemp("futures"), "--agents", "2") as running:
        yield running


def test_the_example_of_the_documentation(local: Local) -> None:
    text = (REPO / "docs" / "futures.md").read_text()
    program = local.work_dir / "example.py"
    program.write_text(text.partition("```python\n")[2].partition("```")[0])
    done = local.run(sys.executable, "-W", "error", str(program))
    assert (done.returncode, done.stderr) == (0, "")
    primes, results, error, progress = done.stdout.splitlines()
    assert (primes, results) == ("168 primes", "[42.0, 1024]")
    assert error == "division by zero - line of the worker: True"
    assert progress.startswith("Progress(waiting=0, running=0, done=22, failed=1, retried=0")
