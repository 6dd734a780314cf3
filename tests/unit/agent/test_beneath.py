"""Hostile tasks cannot make the agent open or serve a file outside of their sandbox."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from croupier.agent.directories import closing, directory, open_directory_beneath
from croupier.agent.sandbox import Sandboxes
from croupier.model.errors import NotFound
from croupier.model.ids import FrameworkId, TaskId

KEY = (FrameworkId("F1"), TaskId("t1"))
SECRET = "secret"


@pytest.fixture
def sandboxes(tmp_path: Path) -> Sandboxes:
    (tmp_path / "work" / "sandboxes").mkdir(parents=True)
    sandboxes = Sandboxes(tmp_path / "work" / "sandboxes")
    with sandboxes.create(KEY) as sandbox, sandbox.streams() as (stdout, _):
        os.write(stdout, b"fine")
    return sandboxes


@pytest.fixture
def home(sandboxes: Sandboxes) -> Path:
    return Path(sandboxes.path_of(KEY))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A directory that a task must not reach, with the layout of a sandbox."""
    (tmp_path / "elsewhere" / "t1").mkdir(parents=True)
    for path in (tmp_path / "elsewhere" / "stdout", tmp_path / "elsewhere" / "t1" / "stdout"):
        path.write_text(SECRET)
    return tmp_path / "elsewhere"


def read(sandboxes: Sandboxes) -> bytes:
    fd = sandboxes.open_output(KEY, "stdout")
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


def test_a_sandbox_of_directories_is_opened(sandboxes: Sandboxes) -> None:
    assert read(sandboxes) == b"fine"


@pytest.mark.parametrize(
    "components",
    [("F1", ".."), ("..",), ("F1/../..",), ("",), ("F1", "."), ("F1", "no"), ("F1\0", "t1")],
)
def test_nothing_leads_upwards(sandboxes: Sandboxes, components: tuple[str, ...]) -> None:
    with directory(sandboxes.root) as root, pytest.raises(OSError, match=r"."):
        open_directory_beneath(root, components)


@pytest.mark.parametrize("target", ["../../../elsewhere", "/proc/self/cwd", "/proc/self/fd/0", "."])
def test_a_link_in_place_of_a_directory_is_not_followed(
    sandboxes: Sandboxes, home: Path, elsewhere: Path, target: str
) -> None:
    home.rename(home.with_name("old"))
    home.symlink_to(target)
    with directory(sandboxes.root) as root, pytest.raises(OSError, match=r"links|directory"):
        open_directory_beneath(root, KEY)
    with pytest.raises(NotFound):
        read(sandboxes)


def _link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def _magic_link(path: Path) -> None:
    path.symlink_to("/proc/self/environ")


def _hard_link(path: Path) -> None:
    path.parent.joinpath("other").write_text(SECRET)
    path.hardlink_to(path.parent / "other")


def _directory(path: Path) -> None:
    path.mkdir()


def _device(path: Path) -> None:
    try:
        os.mknod(path, 0o666 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes device nodes")


def _another_users(path: Path) -> None:
    path.write_text(SECRET)
    try:
        os.chown(path, 12345, 12345)
    except PermissionError:
        pytest.skip("only root gives files away")


@pytest.mark.parametrize(
    "leave", [_link, _magic_link, _hard_link, _directory, os.mkfifo, _device, _another_users]
)
def test_only_the_tasks_own_regular_file_is_served(
    sandboxes: Sandboxes, home: Path, leave: Callable[[Path], None]
) -> None:
    (home / "stdout").unlink()
    leave(home / "stdout")
    with pytest.raises(NotFound):
        read(sandboxes)


@pytest.fixture
def swapping(sandboxes: Sandboxes, home: Path, elsewhere: Path) -> Iterator[None]:
    """A thread that replaces the framework's directory by a link and back, without end."""
    framework, aside, link = home.parent, home.parent.with_name("aside"), elsewhere / "link"
    link.symlink_to(elsewhere)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            framework.rename(aside)
            link.rename(framework)
            framework.rename(link)
            aside.rename(framework)

    thread = threading.Thread(target=swap)
    thread.start()
    yield
    over.set()
    thread.join(5)


def test_a_race_of_links_never_leads_out(sandboxes: Sandboxes, swapping: None) -> None:
    found: set[bytes] = set()
    for _ in range(500):
        with suppress(NotFound):
            found.add(read(sandboxes))
    assert found <= {b"fine"}


def test_no_descriptor_leaks(sandboxes: Sandboxes) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with directory(sandboxes.root) as root:
        for name in ("t1", "no"):
            with suppress(OSError), closing(open_directory_beneath(root, ("F1", name))):
                pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before
