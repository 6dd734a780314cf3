"""Shims that start one task after the other: nothing of a task reaches the next one."""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path
from signal import SIGKILL, SIGSTOP, SIGTERM

import pytest

from croupier.agent.core.events import Exited, LaunchFailed, Started
from croupier.agent.shim import run_file, waiting
from croupier.agent.shim.orphans import end_orphans
from croupier.agent.shim.start import create_locked
from tests.harness.eventually import eventually
from tests.harness.processes import is_running
from tests.harness.supervisor_fixture import TaskRunner, key
from tests.integration.shim.conftest import KilledSupervisor


async def one_after_the_other(runner: TaskRunner, *lines: str) -> list[int]:
    """Run shell lines; return the pids of their shims."""
    for number, line in enumerate(lines):
        runner.shell(f"s{number}", line)
        await runner.ended(f"s{number}")
    return [runner.shim_of(f"s{number}") for number in range(len(lines))]


async def test_a_shim_starts_the_next_task(runner: TaskRunner) -> None:
    shims = await one_after_the_other(runner, "exit 1", "exit 2", "kill -9 $$")
    assert len(set(shims)) == 1
    ends = [await runner.ended(f"s{number}") for number in range(3)]
    assert ends == [Exited(key("s0"), 1), Exited(key("s1"), 2), Exited(key("s2"), signal=SIGKILL)]


async def test_a_failed_start_keeps_the_shim(runner: TaskRunner) -> None:
    for number, program in enumerate(("true", "/no/such", "true")):
        runner.spawn(f"s{number}", program)
        await runner.ended(f"s{number}")
    assert [type(each) for each in runner.reports] == [
        Started, Exited, LaunchFailed, Started, Exited
    ]  # fmt: skip
    assert len({runner.shim_of(f"s{number}") for number in range(3)}) == 1


async def test_a_task_has_nothing_of_the_one_before(runner: TaskRunner) -> None:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    options: tuple[str, ...] = (f"limit={resource.RLIMIT_NOFILE}:64:64", "umask=077")
    options += ("no-new-privs", "landlock=0:1:0:41872-41872")
    runner.spawn("t1", "true", environment={"SECRET": "1"}, options=options)
    await runner.ended("t1")
    line = "ulimit -n; umask; grep NoNewPrivs /proc/self/status; env; ls /proc/self/fd"
    runner.shell("t2", line)
    await runner.ended("t2")
    assert runner.shim_of("t1") == runner.shim_of("t2")
    limit, umask, privileges, *rest = runner.printed("t2").splitlines()
    now = os.umask(0o022)
    os.umask(now)
    assert (limit, int(umask, 8), privileges) == (str(soft), now, "NoNewPrivs:\t0")
    assert f"CROUPIER_TASK_RUN={runner.runs / 't2'}" in rest
    assert not [each for each in rest if "SECRET" in each]
    # The last one is that of ls itself.
    assert rest[-4:] == ["0", "1", "2", "3"]


async def test_a_task_does_not_get_the_signal_of_the_one_before(runner: TaskRunner) -> None:
    (shim,) = await one_after_the_other(runner, "true")
    # The agent has sent them before it knew of the end.
    os.kill(shim, SIGTERM)
    os.kill(shim, 10)
    runner.shell("t2", "sleep 0.1; exit 7")
    assert await runner.ended("t2") == Exited(key("t2"), 7)
    assert runner.shim_of("t2") == shim


async def test_usage_is_that_of_the_task(runner: TaskRunner) -> None:
    program = "import time\nb = bytearray(30_000_000)\nwhile time.process_time() < 0.2: pass"
    big = f"python3 -S -c '{program}'"
    await one_after_the_other(runner, big, "true")
    usage = []
    for name in ("s0", "s1"):
        end = await runner.measured(name)
        assert isinstance(end, Exited)
        assert end.ending.usage == run_file.read_path(runner.runs / name).usage
        usage.append(end.ending.usage)
    assert usage[0] is not None
    assert usage[1] is not None
    assert usage[0].cpu_ms >= 200 > usage[1].cpu_ms
    assert usage[0].memory_peak > 30_000_000 > usage[1].memory_peak


async def test_a_shim_is_found_by_its_present_run_file(runner: TaskRunner) -> None:
    def words(pid: int) -> list[bytes]:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")[2:]

    (shim,) = await one_after_the_other(runner, "true")
    assert words(shim) == []
    runner.shell("t1", "sleep 60")
    await runner.started("t1")
    assert words(shim) == [f"run={runner.runs}/t1".encode()]


async def test_a_killed_idle_shim_is_replaced(runner: TaskRunner) -> None:
    (shim,) = await one_after_the_other(runner, "true")
    os.kill(shim, SIGKILL)
    # The supervisor does not know yet.
    runner.shell("t1", "exit 3")
    await eventually(lambda: runner.reports[-1].key == key("t1"))
    assert not is_running(shim)
    end = await runner.ended("t1")
    # The message may have reached the shim in its last moment.
    if isinstance(end, Exited):
        assert end == Exited(key("t1"), 3)
        assert runner.shim_of("t1") != shim
    else:
        assert end.message == "its shim was killed"


async def test_a_stopped_idle_shim_continues_with_its_task(
    runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shim,) = await one_after_the_other(runner, "true")
    os.kill(shim, SIGSTOP)
    runner.shell("t1", "sleep 60")
    # Each signal waits for the start.
    runner.supervisor.signal(key("t1"), SIGTERM)
    assert await runner.ended("t1") == Exited(key("t1"), signal=SIGTERM)


async def test_idle_shims_end_after_a_while_and_with_the_supervisor(
    runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        runner.shell(f"t{number}", "sleep 0.05")
    for number in range(3):
        await runner.ended(f"t{number}")
    shims = [runner.shim_of(f"t{number}") for number in range(3)]
    assert len(set(shims)) == 3
    assert all(map(is_running, shims))
    monkeypatch.setattr(waiting, "IDLE_S", 0.0)
    await eventually(lambda: not any(map(is_running, shims)), what="idle shims end")
    monkeypatch.undo()
    runner.shell("last", "true")
    await runner.ended("last")
    runner.supervisor.close()
    assert not is_running(runner.shim_of("last"))
    # For the fixture.
    runner.supervisor = TaskRunner(runner.work, runner.shim).supervisor


async def test_few_idle_shims_are_kept(runner: TaskRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST_IDLE", 1)
    for number in range(3):
        runner.shell(f"t{number}", "sleep 0.05")
    for number in range(3):
        await runner.ended(f"t{number}")
    shims = [runner.shim_of(f"t{number}") for number in range(3)]
    await eventually(lambda: sum(map(is_running, shims)) == 1, what="two end")


async def test_a_large_task_has_a_shim_of_its_own(runner: TaskRunner) -> None:
    (shim,) = await one_after_the_other(runner, "true")
    runner.spawn("t1", "/bin/sh", "-c", "exit ${#LARGE}", environment={"LARGE": "x" * 40_000})
    assert await runner.ended("t1") == Exited(key("t1"), 40_000 % 256)
    runner.spawn("t2", "/bin/sh", "-c", "exit $#", *["x"] * 5_000)
    assert await runner.ended("t2") == Exited(key("t2"), 4_999 % 256)
    assert shim not in (runner.shim_of("t1"), runner.shim_of("t2"))
    assert is_running(shim)


async def test_idle_shims_end_with_a_killed_agent(
    runner: TaskRunner, killed_supervisor: KilledSupervisor
) -> None:
    killed_supervisor(1, "while ! [ -e go ]; do sleep 0.01; done; exit 4")
    shim = runner.shim_of("t0")
    assert is_running(shim)
    (runner.home("t0") / "go").touch()
    await eventually(lambda: not is_running(shim), what="it ends with its task")
    assert runner.adopt("t0") == Exited(key("t0"), 4)


async def test_an_orphan_that_its_shim_has_not_begun_never_begins(runner: TaskRunner) -> None:
    (shim,) = await one_after_the_other(runner, "true")
    os.kill(shim, SIGSTOP)
    runner.shell("t1", "touch ran")
    assert await asyncio.to_thread(end_orphans, runner.runs, ("s0",)) == 1
    assert not is_running(shim)
    assert not (runner.home("t1") / "ran").exists()
    assert [path.name for path in runner.runs.iterdir()] == ["s0"]


async def test_a_run_that_its_shim_never_got_was_never_started(runner: TaskRunner) -> None:
    (shim,) = await one_after_the_other(runner, "true")
    started = run_file.start_of(shim)
    assert started is not None
    # The agent was killed before it gave the run to the shim.
    os.close(create_locked(runner.runs / "t1", run_file.Process(shim, started)))
    record = run_file.read_path(runner.runs / "t1")
    assert record == run_file.RunRecord(True, given=run_file.Process(shim, started))
    answer = runner.adopt("t1")
    assert (type(answer).__name__, getattr(answer, "never_started", None)) == ("Vanished", True)
    await asyncio.sleep(0)
    assert is_running(shim)
