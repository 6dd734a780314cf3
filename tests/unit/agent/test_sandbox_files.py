"""Files of a sandbox are listed and opened, and nothing that a hostile task puts in their place."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from croupier.agent import directories, sandbox_files
from croupier.agent.sandbox import Sandboxes
from croupier.agent.sandbox_files import components_of, list_directory, open_file
from croupier.model.errors import CroupierError, InvalidRequest, NotFound
from croupier.model.ids import FrameworkId, TaskId

KEY = (FrameworkId("F1"), TaskId("t1"))


@pytest.fixture(params=["openat2", "without openat2"])
def sandboxes(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Sandboxes:
    if request.param != "openat2":

        def lacks(root: int, path: str) -> int:
            raise OSError(errno.ENOSYS, "no such call")

        monkeypatch.setattr(directories, "_openat2", lacks)
    (tmp_path / "work" / "sandboxes").mkdir(parents=True)
    return Sandboxes(tmp_path / "work" / "sandboxes")


@pytest.fixture
def home(sandboxes: Sandboxes, tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    with sandboxes.create(KEY) as sandbox, sandbox.streams():
        return Path(sandbox.path)


def read(sandboxes: Sandboxes, path: str) -> bytes:
    fd = open_file(sandboxes, KEY, path)
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


def test_files_are_listed_and_read(sandboxes: Sandboxes, home: Path) -> None:
    (home / "logs").mkdir()
    (home / "logs" / "a b.log").write_text("hello")
    (home / "link").symlink_to("logs")
    os.mkfifo(home / "pipe")
    Path(os.fsdecode(bytes(home) + b"/\xff")).touch()
    found, is_cut = list_directory(sandboxes, KEY, "")
    assert [(each.name, each.kind) for each in found] == [
        ("link", "link"), ("logs", "directory"), ("pipe", "other"), ("stderr", "file"),
        ("stdout", "file"), ("\ufffd", "file"),
    ]  # fmt: skip
    assert not is_cut
    (entry,), _ = list_directory(sandboxes, KEY, "./logs/")
    assert (entry.name, entry.size, entry.mode) == ("a b.log", 5, 0o644)
    assert read(sandboxes, "logs//a b.log") == b"hello"


def test_a_large_directory_is_cut(
    sandboxes: Sandboxes, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_files, "MAX_ENTRIES", 1)
    found, is_cut = list_directory(sandboxes, KEY, "")
    assert (len(found), is_cut) == (1, True)


def test_a_directory_of_long_names_is_cut(
    sandboxes: Sandboxes, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master reads the list at once; JSON makes twice as many bytes of some names."""
    for number in range(10):
        (home / f"{number}{'語' * 80}").touch()
    monkeypatch.setattr(sandbox_files, "MAX_NAMES", 2_000)
    found, is_cut = list_directory(sandboxes, KEY, "")
    assert (len(found) <= 6, is_cut) == (True, True)


Place = Callable[[Path, Path], object]


@pytest.mark.parametrize(
    "place",
    [
        lambda at, secret: at.symlink_to(secret),
        lambda at, secret: at.hardlink_to(secret),
        lambda at, _: os.mkfifo(at),
        lambda at, _: at.symlink_to("/proc/self/environ"),
        lambda at, _: at.symlink_to("stdout"),
    ],
)
def test_nothing_but_an_own_regular_file_is_opened(
    sandboxes: Sandboxes, home: Path, tmp_path: Path, place: Place
) -> None:
    place(home / "x", tmp_path / "secret")
    with pytest.raises(NotFound, match="no file x of task t1"):
        open_file(sandboxes, KEY, "x")


def test_no_directory_on_the_way_is_a_link(
    sandboxes: Sandboxes, home: Path, tmp_path: Path
) -> None:
    for target, name in ((tmp_path, "out"), (home, "self"), (Path("/proc/self/root"), "magic")):
        (home / name).symlink_to(target)
        for path in (name, f"{name}/secret", f"{name}/stdout", f"{name}/etc/passwd"):
            with pytest.raises(NotFound):
                open_file(sandboxes, KEY, path)
            with pytest.raises(NotFound):
                list_directory(sandboxes, KEY, path)


@pytest.mark.parametrize("path", ["/etc/passwd", "..", "a/../../x", "a\0b", "x" * 5000, "a/" * 200])
def test_a_path_stays_below_the_sandbox(path: str) -> None:
    with pytest.raises(InvalidRequest):
        components_of(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_other_users_are_not_served(sandboxes: Sandboxes, home: Path) -> None:
    (home / "dir").mkdir()
    for name in ("stdout", "dir"):
        os.chown(home / name, 12345, 12345)
    for call in (open_file, list_directory):
        with pytest.raises(CroupierError):
            call(sandboxes, KEY, "stdout" if call is open_file else "dir")


def test_a_swapped_directory_leads_nowhere(
    sandboxes: Sandboxes, home: Path, tmp_path: Path
) -> None:
    (home / "d").mkdir()
    (home / "d" / "secret").write_text("own")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            (home / "d").rename(home / "e")
            (home / "d").symlink_to(tmp_path)
            (home / "d").unlink()
            (home / "e").rename(home / "d")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(500):
            with suppress(NotFound):
                assert read(sandboxes, "d/secret") == b"own"
    finally:
        done.set()
        thread.join()
