"""Each run gets a new sandbox, and the agent trusts neither its content nor its path."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from croupier.agent.janitor import Janitor
from croupier.agent.sandbox import Sandboxes
from croupier.model.errors import NotFound
from croupier.model.ids import FrameworkId, TaskId
from croupier.process.clock import SystemClock

KEY = (FrameworkId("F1"), TaskId("t1"))


def made(sandboxes: Sandboxes) -> Path:
    with sandboxes.create(KEY, again=True) as sandbox, sandbox.streams():
        return Path(sandbox.path)


def test_a_pipe_in_place_of_output_blocks_nothing(sandboxes: Sandboxes) -> None:
    left = made(sandboxes) / "stdout"
    left.unlink()
    os.mkfifo(left)
    # An open of the pipe for writing would never return, since there is no reader.
    reader = os.open(left, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with sandboxes.create(KEY, again=True) as sandbox, sandbox.streams() as (stdout, _):
            assert stat.S_ISREG(os.fstat(stdout).st_mode)
    finally:
        os.close(reader)


async def test_each_run_has_a_directory_of_its_own(sandboxes: Sandboxes) -> None:
    first = made(sandboxes)
    (first / "left").write_text("by the first")
    second = made(sandboxes)
    assert sorted(path.name for path in second.iterdir()) == ["stderr", "stdout"]
    janitor = Janitor(sandboxes, SystemClock())
    await janitor.clean()
    assert not list(sandboxes.trash.iterdir())
    assert second.exists()


def test_an_existing_sandbox_is_an_error_unless_again(sandboxes: Sandboxes) -> None:
    assert not sandboxes.has(KEY)
    (made(sandboxes) / "left").touch()
    assert sandboxes.has(KEY)
    with pytest.raises(FileExistsError), sandboxes.create(KEY):
        pass
    assert Path(sandboxes.path_of(KEY), "left").exists()
    assert not sandboxes.has((FrameworkId("../.."), TaskId("work")))


@pytest.mark.parametrize("level", ["sandboxes", "F1", "t1"])
def test_output_behind_a_link_is_not_served(
    sandboxes: Sandboxes, tmp_path: Path, level: str
) -> None:
    home = made(sandboxes)
    (home / "stdout").write_text("secret")
    replaced = {"sandboxes": home.parent.parent, "F1": home.parent, "t1": home}[level]
    replaced.rename(tmp_path / "elsewhere")
    replaced.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotFound):
        sandboxes.open_output(KEY, "stdout")


@pytest.mark.parametrize("level", ["sandboxes", "F1"])
async def test_nothing_behind_a_link_is_removed_or_created(
    sandboxes: Sandboxes, tmp_path: Path, level: str
) -> None:
    home = made(sandboxes)
    precious = tmp_path / "precious"
    (precious / ("F1/t1" if level == "sandboxes" else "t1")).mkdir(parents=True)
    before = sorted(precious.rglob("*"))
    replaced = {"sandboxes": home.parent.parent, "F1": home.parent}[level]
    replaced.rename(tmp_path / "elsewhere")
    replaced.symlink_to(precious)
    janitor = Janitor(sandboxes, SystemClock(), keep_s=0)
    if level == "F1":
        janitor.adopt()
    janitor.retire(KEY)
    await janitor.clean()
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        made(sandboxes)
    assert sorted(precious.rglob("*")) == before


async def test_trash_behind_a_link_is_not_emptied(sandboxes: Sandboxes, tmp_path: Path) -> None:
    made(sandboxes)
    moved = sandboxes.move_out(KEY)
    assert moved is not None
    precious = tmp_path / "precious" / moved.name
    precious.mkdir(parents=True)
    sandboxes.trash.rename(tmp_path / "elsewhere")
    sandboxes.trash.symlink_to(precious.parent)
    sandboxes._replaced.append(moved)
    await Janitor(sandboxes, SystemClock()).clean()
    assert precious.exists()
