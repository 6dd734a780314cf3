"""Version 2: where groups may be made, on recorded trees."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from croupier.agent.isolation.cgroup.places import LEAF, SHIMS, delegated_base, separate_base
from croupier.model.errors import Unavailable

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
