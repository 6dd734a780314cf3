"""Version 2: where groups may be made, on recorded trees."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from croupier.agent.core.events import Exceeded
from croupier.agent.isolation.cgroup.bounds import (
    MIB,
    Bounds,
    Measured,
    bounds_of,
    bounds_of_all,
    ending_of,
    mib,
)
from croupier.agent.isolation.cgroup.places import LEAF, SHIMS, delegated_base, separate_base
from croupier.model.errors import Unavailable
from croupier.model.isolation import MAX_AMOUNT, Limits, Usage
from croupier.model.resources import NOTHING, Resources
from croupier.model.task import Reason

WANTED = ("memory", "pids", "cpu", "io")


def group(path: Path, *pids: int, kind: str = "domain", has: str = "cpu io memory pids") -> Path:
    """Make a directory with the files of a group; the root of a machine has no type."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    (path / "cgroup.controllers").write_text(f"{has}\n")
    (path / "cgroup.subtree_control").write_text("")
    if kind:
        (path / "cgroup.type").write_text(f"{kind}\n")
    return path


def marked(name: str, value: bytes) -> Callable[[str, str], bytes]:
    def get_mark(_: str, mark: str) -> bytes:
        if mark == name:
            return value
        raise OSError(61, "No data available")

    return get_mark


NO_MARK = marked("", b"")
ME = os.getpid()


@pytest.fixture
def leaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a new directory have the file that the kernel makes in a group."""
    mkdir = Path.mkdir

    def make(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        mkdir(path, mode, parents, exist_ok)
        (path / "cgroup.procs").touch()

    monkeypatch.setattr(Path, "mkdir", make)


def test_the_root_of_a_machine_may_have_groups_beside_processes(tmp_path: Path) -> None:
    root = group(tmp_path / "cgroup", 1, 2, ME, kind="")
    assert delegated_base(root, WANTED, NO_MARK) == root
    assert (root / "cgroup.subtree_control").read_text().startswith("+")
    assert not (root / LEAF).exists()


@pytest.mark.usefixtures("leaf")
@pytest.mark.parametrize("mark", ["trusted.delegate", "user.delegate"])
def test_an_agent_that_is_alone_in_a_delegated_service_moves_into_a_leaf(
    tmp_path: Path, mark: str
) -> None:
    own = group(tmp_path / "croupier-agent.service", ME)
    assert delegated_base(own, WANTED, marked(mark, b"1")) == own
    assert (own / LEAF / "cgroup.procs").read_text() == str(ME)


def test_an_agent_in_the_leaf_uses_the_group_above(tmp_path: Path) -> None:
    base = group(tmp_path / "croupier-agent.service")
    own = group(base / LEAF, ME, 77)
    assert delegated_base(own, WANTED, NO_MARK) == base


@pytest.mark.usefixtures("leaf")
def test_in_a_container_all_processes_move_into_the_leaf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, moved = group(tmp_path / "cgroup", 1, 7, ME), []
    monkeypatch.setattr(os.path, "ismount", lambda path: path == own)
    write = Path.write_text

    def note(path: Path, text: str) -> int:
        moved.append(text) if path.parent.name == LEAF else None
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", note)
    assert delegated_base(own, WANTED, NO_MARK) == own
    assert sorted(moved) == sorted(["1", "7", str(ME)])


def test_a_group_apart_from_that_of_the_agent(tmp_path: Path) -> None:
    parent = group(tmp_path / "croupier-tasks.service", has="memory pids")
    assert separate_base(parent, WANTED, marked("trusted.delegate", b"1")) == parent
    assert (parent / SHIMS).is_dir()
    assert (parent / "cgroup.subtree_control").read_text() == "+pids"
    with pytest.raises(Unavailable, match="is not delegated"):
        separate_base(parent, WANTED, NO_MARK)
    group(parent, 5)
    with pytest.raises(Unavailable, match="has processes of its own"):
        separate_base(parent, WANTED, marked("trusted.delegate", b"1"))
    with pytest.raises(Unavailable, match=r"there is no group .*none: start its unit"):
        separate_base(tmp_path / "none", WANTED, NO_MARK)


def test_a_service_without_delegation_is_left_alone(tmp_path: Path) -> None:
    own = group(tmp_path / "other.service", ME)
    with pytest.raises(Unavailable, match="is not delegated: under systemd, use croupier-tasks"):
        delegated_base(own, WANTED, NO_MARK)
    assert (own / "cgroup.subtree_control").read_text() == ""
    assert not (own / LEAF).exists()


def test_an_agent_with_others_in_its_group_says_so(tmp_path: Path) -> None:
    own = group(tmp_path / "user.scope", 5, 6, ME)
    with pytest.raises(Unavailable, match="2 other processes are in"):
        delegated_base(own, WANTED, marked("user.delegate", b"1"))
    assert not (own / LEAF).exists()


def test_a_group_of_threads_cannot_have_controllers(tmp_path: Path) -> None:
    own = group(tmp_path / "x", ME, kind="threaded")
    with pytest.raises(Unavailable, match="of the type threaded"):
        delegated_base(own, WANTED, NO_MARK)


def test_a_hybrid_group_without_controllers_is_of_no_use(tmp_path: Path) -> None:
    own = group(tmp_path / "unified", ME, has="hugetlb")
    with pytest.raises(Unavailable, match="has no controller of memory, pids, cpu, io"):
        delegated_base(own, WANTED, NO_MARK)


def test_a_group_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = group(tmp_path / "x", ME)
    # Root may write to every file.
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    with pytest.raises(Unavailable, match="may not be written to"):
        delegated_base(own, WANTED, NO_MARK)


USED = Usage(memory_peak=64 * MIB)


@pytest.mark.parametrize(
    ("cpus", "shares", "weight"),
    [("", 2, 1), ("cpus:0.001", 2, 1), ("cpus:1", 1024, 100), ("cpus:2.5", 2560, 250)],
)
def test_weights_grow_with_cpus(cpus: str, shares: int, weight: int) -> None:
    bounds = bounds_of(Resources.parse(cpus), Limits())
    assert (bounds.shares, bounds.weight) == (shares, weight)


def test_weights_stay_in_the_range_of_the_kernel() -> None:
    bounds = Bounds(cpus=10**9)
    assert (bounds.shares, bounds.weight) == (262_144, 10_000)


def test_quotas_stay_in_the_range_of_the_kernel() -> None:
    for cpus, quota_us in ((1, 1_000), (MAX_AMOUNT, 2**43)):
        assert bounds_of(NOTHING, Limits(cpus=cpus)).quota_us == quota_us


def test_limits_become_bytes_microseconds_and_numbers() -> None:
    limits = Limits(cpus=1500, mem=64_000, pids=10)
    bounds = bounds_of(Resources.parse("cpus:1;mem:64MB"), limits)
    assert bounds == Bounds(64 * MIB, 0, 1000, 150_000, 10)


def test_memory_below_what_was_accounted_is_spared() -> None:
    bounds = bounds_of(Resources.parse("mem:32MB"), Limits(mem=64_000))
    assert (bounds.memory, bounds.spared) == (64 * MIB, 32 * MIB)


def test_all_tasks_are_bound_to_the_memory_of_the_agent() -> None:
    assert bounds_of_all(Resources.parse("cpus:2;mem:1GB")) == Bounds(1024 * MIB, 0, 2000)


def test_a_kill_at_the_own_limit_names_limit_and_peak() -> None:
    ending = ending_of(Measured(USED, 64 * MIB, 1, is_own_limit=True))
    message = "memory limit of 64 MiB exceeded; peak 64 MiB"
    assert ending.exceeded == Exceeded(Reason.MEMORY_LIMIT, message)
    assert ending.usage == USED


@pytest.mark.parametrize(
    ("limit", "own"), [(128 * MIB, "its own limit is 128 MiB; peak 64 MiB"), (0, "peak 64 MiB")]
)
def test_a_kill_below_the_own_limit_is_told_as_such(limit: int, own: str) -> None:
    exceeded = ending_of(Measured(USED, limit, 2)).exceeded
    assert exceeded is not None
    assert exceeded.message == (
        f"killed because the memory of all tasks or of the machine was short; {own}"
    )


@pytest.mark.parametrize(("times", "text"), [(1, "once"), (3, "3 times")])
def test_forks_that_failed_are_a_note(times: int, text: str) -> None:
    ending = ending_of(Measured(USED, pids_limit=10, refused=times))
    assert (ending.exceeded, ending.notes) == (None, (f"pids limit of 10 was met {text}",))


def test_sizes_have_at_most_one_decimal() -> None:
    assert [mib(size) for size in (0, MIB // 2, 64 * MIB, 10_000 * MIB + 1)] == [
        "0 MiB",
        "0.5 MiB",
        "64 MiB",
        "10000 MiB",
    ]
