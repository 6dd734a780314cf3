"""Groups of version 1 that runs use one after the other: nothing of a run is in the next one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.agent.isolation.cgroup import v1
from croupier.agent.isolation.cgroup.bounds import MIB, Bounds, Measured
from croupier.agent.isolation.cgroup.isolator import open_groups, own_groups, place_for
from croupier.agent.isolation.cgroup.places import Place
from croupier.agent.isolation.cgroup.v1 import V1Groups
from croupier.model.errors import Unavailable
from tests.harness.limited_tasks import NO_BOUNDS

SOME = Bounds(64 * MIB, 0, 8000, 0, 20)
# The interpreter itself: `python3` may be a script that starts many processes to find one, and the
# group has the weight of one process beside all others of the machine.
PYTHON = f"{sys.executable} -S -c"
# Uses 20 MiB and 0.1 s, and has 3 processes at once.
WORK = (
    f"sh -c 'sleep 0.1 & wait' & {PYTHON} 'b = bytearray(20 << 20)\nimport time\n"
    "while time.process_time() < 0.1: pass'; wait"
)


@pytest.fixture
def place() -> Place:
    try:
        place = place_for(own_groups(), f"croupier-test-spare-{os.getpid()}")
        open_groups(place, NO_BOUNDS).close()
    except (Unavailable, OSError) as reason:
        pytest.skip(f"this machine lets no control groups be made: {reason}")
    if not {"memory", "pids", "cpuacct"} <= place.directories.keys() or place.version != 1:
        pytest.skip("groups of version 2 cannot be renamed, so none is used again")
    return place


@pytest.fixture
def groups(place: Place) -> Iterator[V1Groups]:
    opened = open_groups(place, NO_BOUNDS)
    assert isinstance(opened, V1Groups)
    yield opened
    for run in opened.names():
        opened.kill(run)
        opened.remove(run)
    opened.close()
    assert not any(Path(path).exists() for path in place.directories.values())


class Runs:
    """Starts and ends runs; `inode` is that of the group of memory."""

    def __init__(self, groups: V1Groups, place: Place) -> None:
        self.groups, self._place = groups, place

    def begin(self, run: str, bounds: Bounds = SOME, *, is_fixed: bool = True) -> int:
        self.options = self.groups.make(run, bounds, is_fixed=is_fixed)
        return (Path(self._place.directories["memory"]) / run).stat().st_ino

    def work(self, line: str) -> None:
        files = " ".join(option.partition("=")[2] for option in self.options)
        enter = f'for each in {files}; do echo 0 > "$each"; done; exec sh -c "$0"'
        subprocess.run(["sh", "-c", enter, line], check=False, timeout=100)

    def end(self, run: str) -> Measured:
        assert self.groups.is_empty(run)
        measured = self.groups.measure(run)
        assert measured is not None
        self.groups.remove(run)
        assert not self.groups.has(run)
        assert self.groups.measure(run) is None
        assert run not in self.groups.names()
        # Repeatable.
        self.groups.remove(run)
        return measured


@pytest.fixture
def runs(groups: V1Groups, place: Place) -> Runs:
    return Runs(groups, place)


def test_a_group_is_used_again_and_measures_the_new_run_only(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each cpu holds back some pages of an ended process: together up to about 1 MiB.
    monkeypatch.setattr(v1, "_MOST_LEFT", 4 * MIB)
    first = runs.begin("r1")
    runs.work(WORK)
    usage = runs.end("r1").usage
    assert usage.cpu_ms >= 100
    assert usage.memory_peak > 20 * MIB
    assert usage.pids_peak >= 3
    assert runs.begin("r2") == first
    assert runs.groups.names() == {"r2"}
    runs.work("exec true")
    usage = runs.end("r2").usage
    assert usage.cpu_ms < 100
    assert usage.memory_peak < 5 * MIB
    assert usage.pids_peak <= 2


def test_two_runs_at_once_have_two_groups(runs: Runs) -> None:
    runs.begin("r1")
    runs.end("r1")
    assert runs.begin("r2") != runs.begin("r3")
    for run in ("r2", "r3"):
        runs.end(run)


def test_other_bounds_need_another_group(runs: Runs, place: Place) -> None:
    first = runs.begin("r1")
    runs.end("r1")
    assert runs.begin("r2", replace(SOME, memory=32 * MIB)) != first
    limit = Path(place.directories["memory"]) / "r2" / "memory.limit_in_bytes"
    assert int(limit.read_text()) == 32 * MIB
    runs.end("r2")


def test_a_group_that_its_task_can_change_is_not_used_again(runs: Runs) -> None:
    first = runs.begin("r1", is_fixed=False)
    runs.end("r1")
    assert runs.begin("r2") != first
    runs.end("r2")
    # Nor is a new run, whose task could change it, put into an earlier group.
    kept = runs.begin("r3")
    runs.end("r3")
    assert runs.begin("r4", is_fixed=False) != kept
    runs.end("r4")


def test_a_group_with_killed_processes_is_not_used_again(runs: Runs) -> None:
    first = runs.begin("r1", replace(SOME, memory=8 * MIB))
    runs.work(f"exec {PYTHON} 'b = bytearray(20 << 20)'")
    assert runs.end("r1").killed == 1
    assert runs.begin("r2", replace(SOME, memory=8 * MIB)) != first
    assert runs.end("r2").killed == 0


def test_a_group_whose_run_was_killed_is_not_used_again(runs: Runs) -> None:
    first = runs.begin("r1")
    runs.groups.kill("r1")
    runs.end("r1")
    assert runs.begin("r2") != first
    runs.end("r2")


def test_a_group_that_holds_memory_is_not_used_again(runs: Runs, tmp_path: Path) -> None:
    first = runs.begin("r1")
    runs.work(f"head -c 8m /dev/zero > {tmp_path}/file")
    runs.end("r1")
    assert runs.begin("r2") != first
    assert runs.end("r2").usage.memory_peak < 5 * MIB


def test_a_group_with_groups_is_not_used_again(runs: Runs, place: Place) -> None:
    first = runs.begin("r1")
    inner = Path(place.directories[next(iter(place.directories))]) / "r1" / "inner"
    inner.mkdir()
    runs.groups.measure("r1")
    runs.groups.remove("r1")
    assert not inner.exists()
    assert runs.begin("r2") != first
    runs.end("r2")


def test_a_run_that_was_not_measured_leaves_no_group(runs: Runs) -> None:
    first = runs.begin("r1")
    runs.groups.remove("r1")
    assert runs.begin("r2") != first
    runs.end("r2")


def test_few_groups_are_kept(runs: Runs, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(v1, "MOST", 2)
    for run in ("r1", "r2", "r3"):
        runs.begin(run, replace(SOME, cpus=int(run[1])))
    for run in ("r1", "r2", "r3"):
        runs.end(run)
    memory = Path(place.directories["memory"])
    assert sorted(each.name for each in memory.iterdir() if each.is_dir()) == ["r2", "r3"]


def test_the_next_agent_removes_groups_that_a_killed_one_has_kept(runs: Runs, place: Place) -> None:
    runs.begin("r1")
    runs.end("r1")
    following = open_groups(place, NO_BOUNDS)
    assert following.names() == {"r1"}
    following.remove("r1")
    # The group is gone; the run gets a new one.
    runs.begin("r2")
    runs.end("r2")
