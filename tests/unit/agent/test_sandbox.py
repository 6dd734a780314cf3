"""Each run gets a sandbox that the agent does not trust; that of a silent task is used again."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from croupier.agent import silent_tasks as silent_module
from croupier.agent.core.tasks import Key
from croupier.agent.janitor import Janitor
from croupier.agent.sandbox import NothingWritten, Sandboxes
from croupier.agent.sandbox_files import list_directory, open_file
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


# Tasks that wrote nothing: the next task gets the directory, and readers get nothing.


def key(name: str, framework: str = "F1") -> Key:
    return (FrameworkId(framework), TaskId(name))


@pytest.fixture
def janitor(sandboxes: Sandboxes) -> Janitor:
    return Janitor(sandboxes, SystemClock())


def started(sandboxes: Sandboxes, name: str, framework: str = "F1") -> os.stat_result:
    with sandboxes.create(key(name, framework)) as sandbox:
        assert list(Path(sandbox.path).iterdir()) == []
        assert os.path.samestat(os.fstat(sandbox.home), Path(sandbox.path).stat())
        return os.fstat(sandbox.home)


def silent(sandboxes: Sandboxes, janitor: Janitor, name: str, framework: str = "F1") -> int:
    """Run a task that writes nothing and is forgotten; return the inode of its sandbox."""
    inode = started(sandboxes, name, framework).st_ino
    sandboxes.silent.add(key(name, framework))
    janitor.retire(key(name, framework))
    return inode


def names(sandboxes: Sandboxes) -> list[str]:
    return sorted(path.name for path in sandboxes.root.glob("*/*"))


def test_the_next_task_gets_the_directory(sandboxes: Sandboxes, janitor: Janitor) -> None:
    first = silent(sandboxes, janitor, "t1")
    assert sandboxes.silent.has(key("t1"))
    assert started(sandboxes, "t2").st_ino == first
    assert names(sandboxes) == ["t2"]
    assert [sandboxes.silent.has(key(name)) for name in ("t1", "t2")] == [True, False]
    assert len(janitor) == 0


def test_a_directory_is_kept_until_the_end_is_acknowledged(
    sandboxes: Sandboxes, janitor: Janitor
) -> None:
    first = started(sandboxes, "t1").st_ino
    sandboxes.silent.add(key("t1"))
    assert started(sandboxes, "t2").st_ino != first
    janitor.retire(key("t1"))
    assert started(sandboxes, "t3").st_ino == first


def test_a_task_that_wrote_keeps_its_directory(sandboxes: Sandboxes, janitor: Janitor) -> None:
    first = started(sandboxes, "t1").st_ino
    janitor.retire(key("t1"))
    assert started(sandboxes, "t2").st_ino != first
    assert len(janitor) == 1


def test_another_framework_gets_a_directory_of_its_own(
    sandboxes: Sandboxes, janitor: Janitor
) -> None:
    first = silent(sandboxes, janitor, "t1")
    assert started(sandboxes, "t1", "F2").st_ino != first
    assert started(sandboxes, "t2").st_ino == first


@pytest.mark.parametrize("change", ["file", "mode", "link", "gone", "plain"])
def test_a_directory_that_another_process_has_changed_is_not_used(
    sandboxes: Sandboxes, janitor: Janitor, change: str, tmp_path: Path
) -> None:
    first = silent(sandboxes, janitor, "t1")
    path = Path(sandboxes.path_of(key("t1")))
    if change == "file":
        (path / "left").touch()
    elif change == "mode":
        path.chmod(0o777)
    else:
        path.rename(tmp_path / "elsewhere")
    if change == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif change == "plain":
        path.touch()
    assert started(sandboxes, "t2").st_ino != first
    assert names(sandboxes) == ["t2"]


def test_readers_learn_that_the_task_wrote_nothing(sandboxes: Sandboxes, janitor: Janitor) -> None:
    silent(sandboxes, janitor, "t1")
    for _ in range(2):
        with pytest.raises(NothingWritten):
            sandboxes.open_output(key("t1"), "stdout")
        assert list_directory(sandboxes, key("t1"), "") == ([], False)
        with pytest.raises(NotFound):
            open_file(sandboxes, key("t1"), "stdout")
        with pytest.raises(NotFound):
            list_directory(sandboxes, key("t1"), "logs")
        assert sandboxes.has(key("t1"))
        if "t2" not in names(sandboxes):
            started(sandboxes, "t2")


@pytest.mark.parametrize(
    "read",
    [
        lambda sandboxes, of: open_file(sandboxes, of, "stdout"),
        lambda sandboxes, of: list_directory(sandboxes, of, ""),
        lambda sandboxes, of: sandboxes.open_output(of, "stdout"),
    ],
)
def test_a_reader_does_not_get_the_files_of_the_next_task(
    sandboxes: Sandboxes,
    janitor: Janitor,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Sandboxes, Key], object],
) -> None:
    silent(sandboxes, janitor, "t1")
    opened = Sandboxes.opened

    @contextmanager
    def given_meanwhile(self: Sandboxes, of: Key) -> Iterator[tuple[int, tuple[int, ...]]]:
        with opened(self, of) as found:
            started(self, "t2")
            Path(self.path_of(key("t2")), "stdout").write_text("of the next task")
            yield found

    monkeypatch.setattr(Sandboxes, "opened", given_meanwhile)
    with pytest.raises(NotFound, match=r"wrote nothing|written no stdout"):
        read(sandboxes, key("t1"))


def test_a_sandbox_that_is_gone_may_be_that_of_a_silent_task(sandboxes: Sandboxes) -> None:
    with pytest.raises(NotFound, match="it was removed, or the task wrote nothing"):
        sandboxes.open_output(key("t1"), "stdout")


def test_a_silent_task_that_is_started_again_has_a_directory_of_its_own(
    sandboxes: Sandboxes, janitor: Janitor
) -> None:
    silent(sandboxes, janitor, "t1")
    started(sandboxes, "t2")
    started(sandboxes, "t1")
    assert names(sandboxes) == ["t1", "t2"]
    assert not sandboxes.silent.has_given(key("t1"))


def test_what_is_remembered_is_bounded(
    sandboxes: Sandboxes, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silent_module, "MOST_SPARE", 2)
    monkeypatch.setattr(silent_module, "MOST_GIVEN", 2)
    for name in ("t1", "t2", "t3"):
        started(sandboxes, name)
        sandboxes.silent.add(key(name))
    for name in ("t1", "t2", "t3"):
        janitor.retire(key(name))
    # The oldest one is kept as any other sandbox.
    assert len(janitor) == 1
    for name in ("a", "b", "c"):
        silent(sandboxes, janitor, name)
        started(sandboxes, f"{name}2")
    assert [sandboxes.silent.has_given(key(name)) for name in ("a", "b", "c")] == [
        False, True, True
    ]  # fmt: skip


async def test_a_directory_that_the_janitor_has_removed_is_not_handed_over(
    sandboxes: Sandboxes, janitor: Janitor
) -> None:
    silent(sandboxes, janitor, "t1")
    sandboxes.move_out(key("t1"))
    started(sandboxes, "t2")
    assert not sandboxes.silent.has_given(key("t1"))
