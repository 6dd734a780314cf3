"""The shim, and a supervisor with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from croupier.agent.shim.build import Shim, prepare_shim
from tests.harness.supervisor_fixture import TaskRunner

KilledSupervisor = Callable[[int, str], None]


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Shim:
    return prepare_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture
async def runner(tmp_path: Path, shim: Shim) -> AsyncIterator[TaskRunner]:
    runner = TaskRunner(tmp_path, shim)
    yield runner
    left = await runner.supervisor.end(10)
    runner.supervisor.close()
    assert left == 0


@pytest.fixture
def killed_supervisor(tmp_path: Path) -> Iterator[KilledSupervisor]:
    """Return a function that starts tasks from a process, which is killed once they run."""
    processes: list[subprocess.Popen[bytes]] = []

    def start_and_kill(count: int, line: str) -> None:
        words = ["-m", "tests.harness.supervisor_process", str(tmp_path), str(count), line]
        process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE)
        processes.append(process)
        assert process.stdout is not None
        lines = iter(process.stdout.readline, b"")
        assert any(line == b"ready\n" for line in lines)
        process.kill()
        process.wait(timeout=10)
        process.stdout.close()

    yield start_and_kill
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait(timeout=10)
