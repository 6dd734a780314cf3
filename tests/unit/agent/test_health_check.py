"""Health checks have results and times, and block nothing."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from croupier.agent import health_check as module
from croupier.agent import probe as probing
from croupier.agent.checkpoint import Checkpoint
from croupier.agent.core.effects import CheckHealth
from croupier.agent.core.events import HealthChecked
from croupier.agent.health_check import TRIAL, HealthCheck
from croupier.agent.probe import GIB, GivenResources, probe, spared
from croupier.agent.recover import unknown_runs
from croupier.agent.shim.build import Shim
from croupier.agent.shim.orphans import end_orphans
from croupier.agent.shim.run_file import SIZE
from croupier.agent.work_dir import WorkDir
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.process.clock import SystemClock

GOOD = Shim(("/bin/true",))
THOROUGH = CheckHealth(0.0, is_thorough=True)


class Checking:
    """A running health check of a work dir, and its reports."""

    def __init__(self, path: Path, shim: Shim = GOOD) -> None:
        self.path, self._shim = path, shim
        self._reports: asyncio.Queue[HealthChecked] = asyncio.Queue()

    async def start(self) -> None:
        self._work_dir = await WorkDir.open(self.path)
        (self.path / "runs").mkdir(exist_ok=True)
        self._checkpoint, _ = Checkpoint.open(self._work_dir.path)
        put, clock, rng = self._reports.put_nowait, SystemClock(), random.Random(1)
        self.check = HealthCheck(self._work_dir, self._checkpoint, self._shim, put, clock, rng)
        self._task = asyncio.create_task(self.check.run())

    async def parts(self, wanted: CheckHealth | None = None) -> set[str]:
        """Return the parts with a problem in the next report."""
        if wanted is not None:
            self.check.ask(wanted)
        async with asyncio.timeout(30):
            report = await self._reports.get()
        assert report.is_thorough == (wanted is not None and wanted.is_thorough)
        assert len({problem.part for problem in report.problems}) == len(report.problems)
        return {problem.part for problem in report.problems}

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._checkpoint.close()
        self._work_dir.close()


@pytest.fixture
async def checking(tmp_path: Path) -> AsyncIterator[Checking]:
    made = Checking(tmp_path / "work")
    await made.start()
    yield made
    await made.stop()


async def test_a_healthy_agent_has_no_problem_and_no_trial_file_is_left(checking: Checking) -> None:
    assert await checking.parts() == set()
    assert await checking.parts(THOROUGH) == set()
    assert not list(checking.path.rglob(f"{TRIAL}*"))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, Path.touch])
async def test_files_that_a_task_puts_beside_the_trial_file_do_not_disturb(
    checking: Checking, make: Callable[[Path], None]
) -> None:
    await checking.parts()
    for part in ("runs", "sandboxes"):
        make(checking.path / part / TRIAL)
    assert await checking.parts(THOROUGH) == set()
    assert await checking.parts(CheckHealth(0.0)) == set()


def test_a_leftover_trial_file_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / TRIAL).write_bytes(b" " * SIZE)
    assert not unknown_runs(tmp_path, [])
    assert end_orphans(tmp_path, set()) == 0
    assert not list(tmp_path.iterdir())


async def test_a_removed_work_dir_is_a_problem(checking: Checking) -> None:
    await checking.parts()
    shutil.rmtree(checking.path)
    assert await checking.parts(THOROUGH) == {"work-dir", "checkpoint"}
    assert not checking.path.exists()


async def test_a_thorough_check_makes_missing_directories_again(checking: Checking) -> None:
    await checking.parts()
    (checking.path / "runs").rmdir()
    assert await checking.parts(CheckHealth(0.0)) == {"work-dir"}
    assert not (checking.path / "runs").exists()
    assert await checking.parts(THOROUGH) == set()
    assert (checking.path / "runs").stat().st_mode & 0o777 == 0o700


async def test_a_link_in_place_of_a_directory_is_not_followed(
    checking: Checking, tmp_path: Path
) -> None:
    await checking.parts()
    (checking.path / "runs").rmdir()
    (checking.path / "runs").symlink_to(tmp_path)
    assert await checking.parts(THOROUGH) == {"work-dir"}


async def test_a_disk_without_room_for_a_run_file_is_a_problem(
    checking: Checking, monkeypatch: pytest.MonkeyPatch
) -> None:
    await checking.parts()

    def full(path: Path) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(module, "_write_trial", full)
    assert await checking.parts(THOROUGH) == {"disk"}


@pytest.mark.parametrize("argv", [("/no/such/shim",), ("/bin/false",)])
async def test_a_shim_that_does_not_start_is_a_problem(
    tmp_path: Path, argv: tuple[str, ...]
) -> None:
    made = Checking(tmp_path / "work", Shim(argv))
    await made.start()
    assert await made.parts() == set(), "processes are started in thorough checks only"
    assert await made.parts(THOROUGH) == {"launch"}
    await made.stop()


async def test_a_disk_that_hangs_is_a_problem_and_blocks_nothing(
    checking: Checking, monkeypatch: pytest.MonkeyPatch
) -> None:
    await checking.parts()
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    monkeypatch.setattr(module, "_write_trial", lambda _: time.sleep(0.3))
    assert await checking.parts(CheckHealth(0.0)) == {"work-dir"}
    monkeypatch.undo()
    assert await checking.parts(THOROUGH) == set()


async def test_a_later_request_replaces_a_planned_check(checking: Checking) -> None:
    await checking.parts()
    checking.check.ask(CheckHealth(3600.0))
    assert await checking.parts(THOROUGH) == set()
    checking.check.ask(THOROUGH)
    checking.check.ask(CheckHealth(3600.0))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await checking._reports.get()


NONE = GivenResources.parse("")


def test_resources_that_are_not_named_are_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5})
    monkeypatch.setattr(probing, "_memory_bytes", lambda: 4 * GIB)
    monkeypatch.setattr(probing, "_disk_bytes", lambda _: 100 * GIB)
    assert str(probe(NONE, tmp_path)) == "cpus:3;mem:3GB;disk:95GB;ports:[31000-32000]"


def test_named_resources_replace_probed_ones_even_by_0(tmp_path: Path) -> None:
    given = GivenResources.parse("cpus:64;disk:0;ports:[1-2];gpus:0;licences:3")
    found = probe(given, tmp_path)
    assert found["mem"] > 0
    assert (found["cpus"], found["disk"], found["gpus"]) == (64_000, 0, 0)
    assert found.ranges == {"ports": ((1, 2),)}
    assert found["licences"] == 3000


def test_ports_named_as_a_number_are_not_probed_too(tmp_path: Path) -> None:
    assert probe(GivenResources.parse("ports:5"), tmp_path).ranges == {}


@pytest.mark.parametrize(
    ("total", "left"), [(64 * GIB, 63 * GIB), (2 * GIB, GIB), (GIB, GIB // 2), (0, 0)]
)
def test_a_small_machine_leaves_half_to_the_system(total: int, left: int) -> None:
    assert spared(total, GIB) == left


def test_text_that_is_not_an_amount_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="cpus: 'four' is not an amount"):
        GivenResources.parse("cpus:four")


def test_a_missing_disk_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot read the disk size"):
        probe(NONE, tmp_path / "none")
