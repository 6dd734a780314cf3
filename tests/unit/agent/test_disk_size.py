"""The size of a directory with hostile content, in steps of bounded work."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from croupier.agent.directories import open_directory
from croupier.agent.isolation import disk_size
from croupier.agent.isolation.disk_size import DiskWalk


def walk(root: Path) -> DiskWalk:
    return DiskWalk(os.open(root, os.O_RDONLY | os.O_DIRECTORY))


def size_of(root: Path, entries: int = 1_000_000) -> int:
    walked = walk(root)
    assert walked.step(entries)
    return walked.size


def by_blocks(root: Path) -> int:
    """Return what `du` counts."""
    inodes = {path.lstat().st_ino: path.lstat().st_blocks for path in (root, *root.rglob("*"))}
    return 512 * sum(inodes.values())


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_all_files_below_count_once(tmp_path: Path) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/d").mkdir()
    for name in ("x", "a/y", "a/b/c/z", "a/d/w"):
        (tmp_path / name).write_bytes(b"x" * 10_000)
    os.link(tmp_path / "x", tmp_path / "a/d/again")
    assert size_of(tmp_path) == by_blocks(tmp_path) >= 40_000


def test_allocated_blocks_count_and_holes_do_not(tmp_path: Path) -> None:
    with (tmp_path / "holes").open("wb") as file:
        file.truncate(1 << 40)
    assert size_of(tmp_path) < 1 << 20


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "big/file").write_bytes(b"x" * 1_000_000)
    (tmp_path / "box").mkdir()
    (tmp_path / "box/link").symlink_to(tmp_path / "big")
    (tmp_path / "box/file").symlink_to(tmp_path / "big/file")
    assert size_of(tmp_path / "box") < 100_000


def test_a_walk_in_small_steps_has_the_same_result(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}/f").write_bytes(b"x" * 5000)
    walked, steps = walk(tmp_path), 0
    while not walked.step(3):
        steps += 1
    assert steps > 10
    assert walked.size == by_blocks(tmp_path)


def test_deep_directories_take_one_descriptor(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(fd)
    before = open_files()
    walked = walk(tmp_path)
    while not walked.step(500):
        # The walk's own, its listing, and the one that lists.
        assert open_files() <= before + 2
    assert open_files() == before
    # Python's own removal is recursive.
    subprocess.run(["rm", "-rf", "d"], cwd=tmp_path, check=True, timeout=60)


def test_files_that_vanish_meanwhile_do_no_harm(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}/f").write_bytes(b"x" * 5000)
    before = open_files()
    walked = walk(tmp_path)
    walked.step(3)
    for number in range(5):
        shutil.rmtree(tmp_path / f"d{number}")
    assert walked.step(1000)
    assert open_files() == before


def test_a_directory_that_moves_meanwhile_ends_the_walk(tmp_path: Path) -> None:
    (tmp_path / "box/a/b").mkdir(parents=True)
    (tmp_path / "else").mkdir()
    (tmp_path / "else/big").write_bytes(b"x" * 1_000_000)
    before = open_files()
    walked = walk(tmp_path / "box")
    while len(walked._levels) < 3:
        walked.step(1)
    # It is inside of a/b now.
    (tmp_path / "box/a/b").rename(tmp_path / "else/b")
    assert walked.step(1000)
    assert walked.size < 500_000
    assert open_files() == before


def test_a_directory_without_permission_counts_itself_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("open", "secret"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_bytes(b"x" * 100_000)

    def opened(name: str, at: int, *, to_list: bool) -> int:
        # Root reads everything.
        if name == "secret":
            raise PermissionError
        return open_directory(name, at, to_list=to_list)

    monkeypatch.setattr(disk_size, "open_directory", opened)
    assert 100_000 <= size_of(tmp_path) < 200_000


def test_a_walk_can_be_ended_early(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    before = open_files()
    walked = walk(tmp_path)
    walked.close()
    walked.close()
    assert walked.step(5)
    assert open_files() == before
