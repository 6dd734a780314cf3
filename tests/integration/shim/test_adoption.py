"""Adoption of tasks whose agent was killed, and of incomplete run files."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

import pytest

from croupier.agent import supervisor
from croupier.agent.core.events import Adopted, Exited, LaunchFailed, Vanished
from croupier.agent.shim import run_file
from croupier.agent.shim.orphans import end_orphans
from croupier.model.errors import InvalidRequest
from tests.harness.eventually import eventually
from tests.harness.processes import is_running
from tests.harness.supervisor_fixture import TaskRunner, key, without_usage
from tests.integration.shim.conftest import KilledSupervisor

NEVER = Vanished(key("t0"), "it was never started", never_started=True)
KILLED = Vanished(key("t0"), "its shim was killed")


def damaged(runner: TaskRunner) -> Vanished:
    return Vanished(key("t0"), f"its run file {runner.runs / 't0'} is damaged")


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that belongs to no task."""
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait(timeout=10)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "ADOPT_S", 0.1)


def write(runner: TaskRunner, *lines: str) -> Path:
    """Write a run file of an earlier agent."""
    path = runner.runs / "t0"
    text = "".join(line.ljust(run_file.LINE) for line in lines)
    path.write_bytes(text.ljust(run_file.SIZE).encode())
    return path


async def test_a_task_outlives_its_agent_and_the_next_gets_its_end(
    runner: TaskRunner, killed_supervisor: KilledSupervisor
) -> None:
    killed_supervisor(1, "echo $$ > pid; while ! [ -e go ]; do sleep 0.01; done; exit 6")
    pid = await runner.pid_in("t0", "pid")
    adopted = runner.adopt("t0")
    assert adopted == Adopted(key("t0"), pid)
    assert isinstance(adopted, Adopted)
    age_s = adopted.age_s
    assert age_s is not None
    # As by the clock of the file that the task wrote first.
    assert abs(age_s - (time.time() - (runner.home("t0") / "pid").stat().st_mtime)) < 2
    (runner.home("t0") / "go").touch()
    assert await runner.ended("t0") == Exited(key("t0"), exit_code=6)


async def test_an_adopted_task_can_be_killed(
    runner: TaskRunner, killed_supervisor: KilledSupervisor
) -> None:
    # Only a session of its own protects the deep process, so `ready` waits until it has one.
    deep_line = "setsid sh -c 'touch apart; exec sleep 60' & echo $! > deep"
    wait = "while ! [ -e apart ]; do sleep 0.01; done"
    line = f"{deep_line}; {wait}; trap '' TERM; echo $$ > ready; sleep 60; sleep 60"
    killed_supervisor(2, line)
    for name in ("t0", "t1"):
        await runner.pid_in(name, "ready")
    for name, number in (("t0", SIGTERM), ("t1", SIGKILL)):
        adopted = runner.adopt(name)
        assert isinstance(adopted, Adopted)
        assert is_running(adopted.pid)
        runner.supervisor.signal(key(name), number)
    assert await runner.ended("t1") == Exited(key("t1"), signal=SIGKILL)
    deep = [await runner.pid_in(name, "deep") for name in ("t0", "t1")]
    assert [is_running(pid) for pid in deep] == [True, False]
    runner.supervisor.signal(key("t0"), SIGKILL)
    await runner.ended("t0")
    assert not is_running(deep[0])


async def test_an_unwatched_end_is_reported_truly(
    runner: TaskRunner, killed_supervisor: KilledSupervisor
) -> None:
    killed_supervisor(3, "while ! [ -e go ]; do sleep 0.01; done; . ./go")
    ends = {"t0": "exit 0", "t1": "exit 9", "t2": "kill -11 $$"}
    shims = [runner.shim_of(name) for name in ends]
    for name, line in ends.items():
        (runner.home(name) / "new").write_text(line)
        (runner.home(name) / "new").rename(runner.home(name) / "go")
    await eventually(lambda: not any(map(is_running, shims)), what="all end")
    assert [runner.adopt(name) for name in ends] == [
        Exited(key("t0"), exit_code=0),
        Exited(key("t1"), exit_code=9),
        Exited(key("t2"), signal=11),
    ]
    assert len(runner.supervisor) == 0


async def test_a_hundred_are_adopted_with_the_same_pids(
    runner: TaskRunner, killed_supervisor: KilledSupervisor
) -> None:
    killed_supervisor(100, "echo $$ > pid; sleep 0.01; exec sleep 60")
    names = [f"t{at}" for at in range(100)]
    pids = [await runner.pid_in(name, "pid") for name in names]
    began = time.process_time()
    assert [runner.adopt(name) for name in names] == [
        Adopted(key(name), pid) for name, pid in zip(names, pids, strict=True)
    ]
    assert time.process_time() - began < 5
    assert await runner.supervisor.end(20) == 0
    ends = {without_usage(report) for report in runner.reports if isinstance(report, Exited)}
    assert ends == {Exited(key(name), signal=SIGKILL) for name in names}


async def test_a_released_task_can_be_adopted_again(
    runner: TaskRunner, killed_supervisor: KilledSupervisor, tmp_path: Path
) -> None:
    killed_supervisor(1, "sleep 60")
    second = TaskRunner(tmp_path, runner.shim)
    first = second.adopt("t0")
    assert isinstance(first, Adopted)
    second.supervisor.close()
    third = TaskRunner(tmp_path, runner.shim)
    assert third.adopt("t0") == first
    assert await third.supervisor.end(10) == 0
    third.supervisor.close()


async def test_a_shim_killed_before_the_adoption_leaves_nothing(
    runner: TaskRunner, killed_supervisor: KilledSupervisor
) -> None:
    killed_supervisor(
        1, "setsid sleep 61 & echo $! > session; env -i setsid sleep 62 & echo $! > out; wait"
    )
    left = [await runner.pid_in("t0", name) for name in ("session", "out")]
    os.kill(runner.shim_of("t0"), SIGKILL)
    await eventually(lambda: not is_running(runner.shim_of("t0")))
    assert runner.adopt("t0") == KILLED
    assert [is_running(pid) for pid in left] == [False, False]


async def test_a_shim_killed_after_the_adoption_leaves_nothing(
    runner: TaskRunner, killed_supervisor: KilledSupervisor
) -> None:
    killed_supervisor(1, "setsid sleep 61 & echo $! > session; wait")
    left = await runner.pid_in("t0", "session")
    runner.adopt("t0")
    os.kill(runner.shim_of("t0"), SIGKILL)
    assert await runner.ended("t0") == Exited(key("t0"), unknown=True)
    assert not is_running(left)


async def test_a_run_without_a_file_was_never_started(runner: TaskRunner) -> None:
    assert runner.adopt("t0") == NEVER


@pytest.mark.parametrize("lines", [(), ("croupier-run 2\n",)])
async def test_a_run_whose_file_has_no_shim_was_never_started(
    runner: TaskRunner, lines: tuple[str, ...]
) -> None:
    path = write(runner, *lines)
    if not lines:
        path.write_bytes(b"")
    assert runner.adopt("t0") == NEVER


async def test_an_unwatched_failed_start_is_reported(runner: TaskRunner) -> None:
    write(runner, "croupier-run 2\n", "shim 99 1\n", f"error exec {errno.ENOENT}\n")
    message = "cannot run its program: no such program, or its interpreter is missing"
    assert runner.adopt("t0") == LaunchFailed(key("t0"), message, 127)


@pytest.mark.parametrize(
    "lines",
    [
        ("damaged", "shim 2 5\n", "task 3 5\n", "exit 0\n"),
        ("croupier-run 3\n", "shim 2 5\n", "task 3 5\n", "exit 0\n"),
        ("croupier-run 2\n", "shim 2 5\n", "task 3 5\n", "exit 0\n", "usage 1 2 3"),
        ("croupier-run 2\n", "shim 2 5\n", "task 3 5\n", "exit 1"),
        ("croupier-run 2\n", "shim 2 5\n", "task 3 5\n", "exit \n"),
        ("croupier-run 2\n", "shim 2 5\n", "task 3", "exit 0\n"),
        ("croupier-run 2\n", "shim 2", "", ""),
        ("croupier-run 2\n", "\0\0\0", "", ""),
        ("croupier-run 2\n", "shim 2 5\n", "task 3 5\n", "exit 0\n", "more"),
    ],
)
async def test_a_damaged_file_has_no_end(runner: TaskRunner, lines: tuple[str, ...]) -> None:
    write(runner, *lines)
    assert runner.adopt("t0") == damaged(runner)


async def test_a_truncated_file_has_no_end(runner: TaskRunner) -> None:
    path = write(runner, "croupier-run 2\n", "shim 2 5\n", "task 3 5\n", "exit 0\n")
    os.truncate(path, 200)
    assert runner.adopt("t0") == damaged(runner)


async def test_a_live_task_with_a_damaged_file_is_ended(
    runner: TaskRunner, killed_supervisor: KilledSupervisor, impatient: None
) -> None:
    killed_supervisor(1, "setsid sleep 61 & echo $! > session; echo $$ > pid; wait")
    pids = [await runner.pid_in("t0", name) for name in ("session", "pid")]
    pids.append(runner.shim_of("t0"))
    write(runner, "rubbish")
    assert runner.adopt("t0") == damaged(runner)
    assert [is_running(pid) for pid in pids] == [False] * 3


async def test_a_shim_stopped_as_it_began_is_killed(runner: TaskRunner, impatient: None) -> None:
    """If the shim continued later, the task would start a second time."""
    script = 'kill -STOP $$; exec "$@"'
    slow = replace(runner.shim, argv=("/bin/sh", "-c", script, "sh", *runner.shim.argv))
    first, second = TaskRunner(runner.work, slow), runner
    first.shell("t0", "touch ran")
    stat = Path(f"/proc/{first.only_shim()}/stat")
    await eventually(lambda: b") T " in stat.read_bytes(), what="it is stopped")
    assert second.adopt("t0") == NEVER
    message = "its shim was killed"
    cause = "the shim of a task was killed before it started it"
    assert await first.ended("t0") == LaunchFailed(key("t0"), message, cause=cause)
    assert not (runner.home("t0") / "ran").exists()
    first.supervisor.close()


async def test_a_reused_pid_is_not_signalled(
    runner: TaskRunner, bystander: subprocess.Popen[bytes]
) -> None:
    began = run_file.start_of(bystander.pid)
    assert began is not None
    for start in (began, began - 1):
        process = f"{bystander.pid} {start}\n"
        write(runner, "croupier-run 2\n", f"shim {process}", f"task {process}")
        assert runner.adopt("t0") == KILLED
    assert bystander.poll() is None


async def test_a_pid_with_another_start_time_is_not_adopted(
    runner: TaskRunner, bystander: subprocess.Popen[bytes], impatient: None
) -> None:
    began = run_file.start_of(bystander.pid)
    assert began is not None
    process = f"{bystander.pid} {began - 1}\n"
    path = write(runner, "croupier-run 2\n", f"shim {process}", f"task {process}")
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="does not end"):
            runner.adopt("t0")
        runner.supervisor.signal(key("t0"), SIGKILL)
    assert len(runner.supervisor) == 0
    assert bystander.poll() is None


async def test_a_link_in_place_of_the_file_is_not_followed(
    runner: TaskRunner, tmp_path: Path
) -> None:
    (runner.runs / "t0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        runner.adopt("t0")


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden"])
async def test_names_of_runs_are_validated(runner: TaskRunner, name: str) -> None:
    with pytest.raises(InvalidRequest):
        runner.supervisor.forget(name)


async def test_orphan_runs_are_ended_and_removed(
    runner: TaskRunner, killed_supervisor: KilledSupervisor
) -> None:
    killed_supervisor(4, "setsid sleep 61 & echo $! > session; wait")
    left = [await runner.pid_in(f"t{at}", "session") for at in range(4)]
    os.kill(runner.shim_of("t3"), SIGKILL)
    adopted = runner.adopt("t1")
    assert isinstance(adopted, Adopted)
    (runner.runs / "over").write_bytes(b"")
    await eventually(lambda: not is_running(runner.shim_of("t3")))
    assert end_orphans(runner.runs, {"t1"}) == 2
    assert [path.name for path in runner.runs.iterdir()] == ["t1"]
    assert [is_running(pid) for pid in left] == [False, True, False, False]
    assert is_running(adopted.pid)


async def test_the_shim_of_an_orphan_run_kills_unmarked_processes(
    runner: TaskRunner, killed_supervisor: KilledSupervisor
) -> None:
    killed_supervisor(1, "env -i setsid sleep 61 >/dev/null 2>&1 & echo $! > bare; wait")
    bare = await runner.pid_in("t0", "bare")
    os.kill(runner.shim_of("t0"), SIGSTOP)
    assert end_orphans(runner.runs, ()) == 1
    assert not is_running(bare)
    assert not list(runner.runs.iterdir())


async def test_a_blocked_agent_does_not_block_tasks(runner: TaskRunner) -> None:
    for at in range(50):
        runner.shell(f"t{at}", "exit 2")
    # The loop, which reads the pipe, is blocked.
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not all(
        b"exit 2\n" in (runner.runs / f"t{at}").read_bytes() for at in range(50)
    ):
        time.sleep(0.01)
    for at in range(50):
        assert await runner.ended(f"t{at}") == Exited(key(f"t{at}"), exit_code=2)


class TestAFullDisk:
    @pytest.fixture
    def small(self, tmp_path: Path) -> Iterator[Path]:
        """Return the mount point of a disk of 64 KiB."""
        path = tmp_path / "small"
        path.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", "size=64k", "croupier-test", str(path)]
        done = subprocess.run(words, capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"cannot mount a small disk: {done.stderr.decode().strip()}")
        yield path
        subprocess.run(["umount", "-l", str(path)], check=True)

    async def test_does_not_lose_an_end(self, small: Path, runner: TaskRunner) -> None:
        other = TaskRunner(runner.work, runner.shim, small / "runs")
        other.shell("t1", "while ! [ -e go ]; do sleep 0.01; done; exit 8")
        await other.started("t1")
        self._fill(small)
        (other.home("t1") / "go").touch()
        assert await other.ended("t1") == Exited(key("t1"), exit_code=8)
        other.supervisor.close()

    async def test_fails_the_start(self, small: Path, runner: TaskRunner) -> None:
        other = TaskRunner(runner.work, runner.shim, small / "runs")
        self._fill(small)
        with pytest.raises(OSError, match="No space left on device"):
            other.shell("t1", "touch ran")
        assert not list(other.runs.iterdir())
        other.supervisor.close()
        await asyncio.sleep(0.05)
        assert not (other.home("t1") / "ran").exists()

    def _fill(self, path: Path) -> None:
        with (path / "filler").open("wb", buffering=0) as file:
            while True:
                try:
                    file.write(b"x" * 4096)
                except OSError:
                    return


async def test_a_stopped_shim_is_adopted_and_reports_its_end_later(
    runner: TaskRunner, killed_supervisor: KilledSupervisor
) -> None:
    killed_supervisor(1, "while ! [ -e go ]; do sleep 0.01; done; exit 3")
    shim = runner.shim_of("t0")
    os.kill(shim, SIGSTOP)
    (runner.home("t0") / "go").touch()
    assert isinstance(runner.adopt("t0"), Adopted)
    os.kill(shim, SIGCONT)
    assert await runner.ended("t0") == Exited(key("t0"), exit_code=3)
