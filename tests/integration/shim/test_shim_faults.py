"""Ends of tasks: each has one, and no process is left, also if shims are killed or stopped."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import Any

import pytest

from croupier.agent import supervisor
from croupier.agent.core.events import Adopted, Exited, LaunchFailed, Started
from croupier.agent.shim import orphans, run_file, shim_process
from croupier.agent.shim.orphans import end_orphans
from tests.harness.effort import portion
from tests.harness.eventually import eventually
from tests.harness.processes import is_running
from tests.harness.supervisor_fixture import TaskRunner, key
from tests.integration.shim.conftest import KilledSupervisor

# Processes that lose their parent, their session, their environment and their output.
DAEMONS = """
sleep 61 & echo $! > plain
setsid sleep 62 & echo $! > session
env -i setsid sleep 63 >/dev/null 2>&1 & echo $! > bare
sh -c 'setsid sh -c "env -i setsid sleep 64 >/dev/null 2>&1 & echo \\$! > twice" &'
while ! [ -s twice ]; do sleep 0.01; done
"""
LEFT = ("plain", "session", "bare", "twice")


def written(runner: TaskRunner, name: str) -> run_file.RunRecord:
    return run_file.parse((runner.runs / name).read_bytes())


@pytest.mark.parametrize("code", [0, 1, 137, 255])
async def test_an_exit_code_is_reported_and_written(runner: TaskRunner, code: int) -> None:
    runner.shell("t1", f"exit {code}")
    assert await runner.ended("t1") == Exited(key("t1"), exit_code=code)
    record = written(runner, "t1")
    assert record.end == run_file.End(exit_code=code)
    assert record.task is not None
    assert record.task.pid == await runner.started("t1")


@pytest.mark.parametrize("number", [6, 9, 11, 15, 64])
async def test_a_signal_is_reported_and_written(runner: TaskRunner, number: int) -> None:
    runner.shell("t1", f"kill -{number} $$")
    assert await runner.ended("t1") == Exited(key("t1"), signal=number)
    assert written(runner, "t1").end == run_file.End(signal=number)


async def test_an_end_that_cannot_be_read_at_once_is_read_later(
    runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptors may be short for a while."""
    errors = iter((errno.EMFILE, errno.ENFILE, errno.EIO))
    really_open = os.open

    def scarce(path: str | Path, flags: int, mode: int = 0o777, dir_fd: int | None = None) -> int:
        number = next(errors, 0) if Path(path).name == "t1" else 0
        if number:
            raise OSError(number, os.strerror(number))
        return really_open(path, flags, mode, dir_fd=dir_fd)

    # A waiting shim reports its end.
    once = TaskRunner(runner.work, replace(runner.shim, waits=False))
    once.shell("t1", "sleep 0.1; exit 7")
    await once.started("t1")
    monkeypatch.setattr("croupier.agent.run_ends.READ_AGAIN_S", 0.01)
    monkeypatch.setattr(os, "open", scarce)
    assert await once.ended("t1") == Exited(key("t1"), exit_code=7)
    assert next(errors, None) is None
    once.supervisor.close()


async def test_a_run_file_is_removed_on_request(runner: TaskRunner) -> None:
    runner.shell("t1", "true")
    await runner.ended("t1")
    runner.supervisor.forget("t1")
    runner.supervisor.forget("t1")
    # What is left is blank, or removed by the next agent.
    assert [path.name for path in runner.runs.iterdir()] == [".spare-1"]
    assert end_orphans(runner.runs, ()) == 0
    assert not list(runner.runs.iterdir())


async def test_sigterm_lets_the_task_end_by_itself(runner: TaskRunner) -> None:
    runner.shell("t1", "trap 'exit 5' TERM; echo $$ > ready; while :; do sleep 0.02; done")
    await runner.pid_in("t1", "ready")
    runner.supervisor.signal(key("t1"), SIGTERM)
    assert await runner.ended("t1") == Exited(key("t1"), exit_code=5)


async def test_sigkill_ends_a_task_that_ignores_sigterm(runner: TaskRunner) -> None:
    runner.shell("t1", "trap '' TERM; setsid sh -c 'echo $$ > deep; sleep 60' & sleep 60; sleep 60")
    deep = await runner.pid_in("t1", "deep")
    runner.supervisor.signal(key("t1"), SIGTERM)
    await asyncio.sleep(0.1)
    runner.supervisor.signal(key("t1"), SIGKILL)
    assert await runner.ended("t1") == Exited(key("t1"), signal=SIGKILL)
    assert not is_running(deep)


async def test_a_stopped_shim_obeys_a_kill(runner: TaskRunner) -> None:
    runner.spawn("t1", "sleep", "60")
    await runner.started("t1")
    os.kill(runner.shim_of("t1"), SIGSTOP)
    runner.supervisor.signal(key("t1"), SIGKILL)
    assert await runner.ended("t1") == Exited(key("t1"), signal=SIGKILL)


async def test_signals_to_the_shim_and_the_terminal_do_not_end_it(runner: TaskRunner) -> None:
    runner.shell("t1", "trap '' TERM HUP INT; echo $$ > ready; sleep 60 & wait; exit 7")
    pid, shim = await runner.pid_in("t1", "ready"), runner.shim_of("t1")
    for number in (1, 2, 3, 10 + 2, 13, 14):
        os.kill(shim, number)
    os.kill(shim, SIGSTOP)
    os.kill(shim, SIGCONT)
    await asyncio.sleep(0.05)
    assert is_running(shim)
    assert is_running(pid)


async def test_daemons_have_ended_when_the_end_is_reported(runner: TaskRunner) -> None:
    runner.shell("t1", f"{DAEMONS}\nexit 4")
    assert await runner.ended("t1") == Exited(key("t1"), exit_code=4)
    pids = [await runner.pid_in("t1", name) for name in LEFT]
    assert [is_running(pid) for pid in pids] == [False] * len(LEFT)


async def test_orphans_that_end_early_are_reaped_while_the_task_runs(runner: TaskRunner) -> None:
    runner.shell("t1", "sh -c 'sleep 0.05 & echo $! > orphan'; sleep 60")
    orphan = await runner.pid_in("t1", "orphan")
    await eventually(lambda: not Path(f"/proc/{orphan}").exists(), what="it is reaped")
    assert not [each for each in runner.reports if isinstance(each, Exited)]


async def test_a_wide_and_deep_tree_of_processes_is_killed(runner: TaskRunner) -> None:
    runner.shell(
        "t1", "for i in 1 2 3 4 5 6 7 8 9; do (setsid sh -c 'sleep 65 & sleep 65' &); done"
    )
    assert await runner.ended("t1") == Exited(key("t1"), exit_code=0)
    marked = f"CROUPIER_TASK_RUN={runner.runs / 't1'}".encode()
    assert not [path for path in _environs() if marked in _read(path).split(b"\0")]


async def test_a_killed_shim_takes_its_task_along(runner: TaskRunner) -> None:
    line = DAEMONS.replace("env -i setsid sleep 63 >/dev/null 2>&1", "env -i setsid sleep 63")
    line = line.replace("env -i setsid sleep 64 >/dev/null 2>&1", "setsid sleep 64 >/dev/null")
    runner.shell("t1", f"{line}\nenv -i sleep 66 >/dev/null 2>&1 & echo $! > group; sleep 60")
    pids = [await runner.pid_in("t1", name) for name in (*LEFT, "group")]
    pids.append(await runner.started("t1"))
    os.kill(runner.shim_of("t1"), SIGKILL)
    assert await runner.ended("t1") == Exited(key("t1"), unknown=True)
    assert [is_running(pid) for pid in pids] == [False] * len(pids)
    assert written(runner, "t1").end is None


async def test_a_start_is_reported_if_the_shim_is_killed_before_it_reports(
    runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The report is lost, as if the shim is killed between the file and the pipe.
    monkeypatch.setattr(runner.supervisor, "_on_start", lambda key, start: None)
    runner.shell("t1", "sleep 60")
    path = runner.runs / "t1"
    await eventually(lambda: b"task " in path.read_bytes())
    os.kill(runner.shim_of("t1"), SIGKILL)
    assert await runner.ended("t1") == Exited(key("t1"), unknown=True)
    assert [type(report) for report in runner.reports] == [Started, Exited]


async def test_the_end_is_reported_after_the_sweep(runner: TaskRunner) -> None:
    runner.shell("t1", "setsid sleep 61 & echo $! > session; sleep 60")
    await runner.started("t1")
    left = await runner.pid_in("t1", "session")
    os.kill(runner.shim_of("t1"), SIGKILL)
    assert await runner.supervisor.end(10) == 0
    assert not is_running(left)
    assert await runner.ended("t1") == Exited(key("t1"), unknown=True)


def _environs() -> list[Path]:
    return [path / "environ" for path in Path("/proc").glob("[0-9]*")]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


TASKS = 80
LINES = ("exit 3", "setsid sleep 61 & sleep 0.01", "(setsid sleep 62 &); sleep 60", "sleep 60")


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

    def count(*marks: Any) -> list[int]:
        scans.append(scan(*marks))
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
