"""Shims killed, stopped and signalled at random: each task has one end, and no process is left."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL, SIGSTOP, SIGTERM

import pytest

from croupier.agent import supervisor
from croupier.agent.core.events import Adopted, Exited, LaunchFailed, Started
from croupier.agent.shim import orphans, run_file, shim_process
from tests.harness.effort import portion
from tests.harness.supervisor_fixture import TaskRunner, key
from tests.integration.shim.conftest import KilledSupervisor

TASKS = 80
LINES = (
    "exit 3",
    "setsid sleep 61 & sleep 0.01",
    "(setsid sleep 62 &); sleep 60",
    "sleep 60",
)


def marked(runs: Path) -> list[str]:
    """Return the pids of all tasks' processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"CROUPIER_TASK_RUN={runs}/".encode() in (path / "environ").read_bytes():
                found.append(path.name)
    return found


def signal_one(runner: TaskRunner, rng: random.Random) -> None:
    """Signal one of the live shims at random."""
    shims = runner.supervisor._keys
    if not shims:
        return
    shim = rng.choice(list(shims))
    with suppress(ProcessLookupError):
        match rng.randrange(5):
            case 0:
                os.kill(shim, SIGKILL)
            case 1:
                os.kill(shim, SIGSTOP)
            case 2:
                runner.supervisor.signal(shims[shim], SIGTERM)
            case 3:
                runner.supervisor.signal(shims[shim], SIGKILL)


@pytest.mark.parametrize("seed", range(portion(5)))
async def test_each_task_has_one_end_and_leaves_nothing(runner: TaskRunner, seed: int) -> None:
    rng = random.Random(seed)
    names = [f"t{at}" for at in range(TASKS)]
    for name in names:
        runner.shell(name, rng.choice(LINES))
        for _ in range(2):
            await asyncio.sleep(rng.random() * 0.004)
            signal_one(runner, rng)
    assert await runner.supervisor.end(60) == 0
    started = {report.key for report in runner.reports if isinstance(report, Started)}
    for name in names:
        end = await runner.ended(name)
        assert isinstance(end, Exited if key(name) in started else LaunchFailed)
    assert not marked(runner.runs)


async def test_a_process_that_ends_during_the_sweep_does_not_hide_its_children(
    runner: TaskRunner,
) -> None:
    script = runner.work / "chain"
    # Each link has a session of its own, and the next link as its child.
    script.write_text('[ "$1" -gt 0 ] && setsid sh "$0" $(($1 - 1)) & sleep 61 & wait')
    # Busy processes delay the ends of others.
    for number in range(6):
        runner.shell(f"busy{number}", "while :; do :; done")
    names = [f"t{at}" for at in range(portion(100))]
    for name in names:
        runner.shell(name, f"setsid sh {script} 14 & sleep 0.1")
    for name in names:
        assert await runner.ended(name) == Exited(key(name), 0)
    assert await runner.supervisor.end(60) == 0
    assert not marked(runner.runs)


async def test_a_shim_killed_before_its_start_is_swept_twice(
    runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child of the shim may fork during the first scan, and end before the scan reads it."""
    scan, scans = orphans._scan, list[list[int]]()

    def count(marks: orphans.RunMarks, found: set[int], spared: set[int]) -> list[int]:
        scans.append(scan(marks, found, spared))
        return scans[-1]

    monkeypatch.setattr(orphans, "_scan", count)
    words = ("/bin/sh", "-c", 'kill -STOP $$; exec "$@"', "sh", *runner.shim.argv)
    stopped = TaskRunner(runner.work, replace(runner.shim, argv=words))
    stopped.shell("t1", "sleep 60")
    os.kill(stopped.only_shim(), SIGKILL)
    assert isinstance(await stopped.ended("t1"), LaunchFailed)
    assert scans == [[], []]
    stopped.supervisor.close()


class TestATaskThatStopsItsShim:
    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(supervisor, "CHECK_S", 0.1)
        monkeypatch.setattr(shim_process, "KILL_S", 0.5)

    async def test_is_reported_as_running_and_can_be_killed(self, runner: TaskRunner) -> None:
        # The shim is stopped from its beginning, as a quick task can do.
        words = ("/bin/sh", "-c", 'kill -STOP $$; exec "$@"', "sh", *runner.shim.argv)
        stopped = TaskRunner(runner.work, replace(runner.shim, argv=words))
        for name in ("t1", "t2"):
            stopped.shell(name, "sleep 60")
        stopped.supervisor.signal(key("t2"), SIGKILL)
        for name in ("t1", "t2"):
            await stopped.started(name)
            stopped.supervisor.signal(key(name), SIGKILL)
            assert await stopped.ended(name) == Exited(key(name), signal=SIGKILL)
        stopped.supervisor.close()

    async def test_can_be_ended_by_sigterm(self, runner: TaskRunner) -> None:
        runner.shell("t1", "echo; sleep 60")
        await runner.started("t1")
        os.kill(runner.shim_of("t1"), SIGSTOP)
        runner.supervisor.signal(key("t1"), SIGTERM)
        assert await runner.ended("t1") == Exited(key("t1"), signal=SIGTERM)

    async def test_has_its_true_end(self, runner: TaskRunner) -> None:
        runner.shell("t1", "sleep 0.2; kill -STOP $PPID; exit 3")
        await runner.started("t1")
        assert await runner.ended("t1") == Exited(key("t1"), exit_code=3)

    async def test_is_killed_although_it_stops_its_shim_repeatedly(
        self, runner: TaskRunner
    ) -> None:
        stops = 'import os\nos.setsid()\nwhile 1: os.kill(int(os.environ["SHIM"]), 19)'
        line = f"SHIM=$PPID setsid {sys.executable} -S -c '{stops}' & wait"
        runner.shell("t1", line)
        await asyncio.sleep(0.2)
        runner.supervisor.signal(key("t1"), SIGKILL)
        await runner.ended("t1")
        assert not marked(runner.runs)

    async def test_is_adopted_by_the_next_agent(
        self, runner: TaskRunner, killed_supervisor: KilledSupervisor
    ) -> None:
        killed_supervisor(1, "sleep 60")
        # As if the shim had been stopped before it wrote that the task runs.
        os.kill(runner.shim_of("t0"), SIGSTOP)
        path = runner.runs / "t0"
        whole = path.read_bytes()
        with path.open("r+b") as file:
            file.seek(2 * run_file.LINE)
            file.write(b" " * run_file.LINE)
        thread = threading.Thread(target=_write_when_continued, args=(runner, path, whole))
        thread.start()
        assert isinstance(runner.adopt("t0"), Adopted)
        thread.join()


def _write_when_continued(runner: TaskRunner, path: Path, content: bytes) -> None:
    """Write the line of a shim that continues after it was stopped."""
    stat = Path(f"/proc/{runner.shim_of('t0')}/stat")
    deadline = time.monotonic() + 10
    while b") T " in stat.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.001)
    with path.open("r+b") as file:
        file.write(content)
