"""Files of a sandbox are listed and opened, and nothing that a hostile task puts in their place."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from croupier.agent import sandbox_files, served_files
from croupier.agent.isolation import disk_size
from croupier.agent.isolation.disk_size import HiddenFiles, processes_below, removed_files
from croupier.agent.output_links import OutputLinks
from croupier.agent.sandbox import Sandboxes
from croupier.agent.sandbox_files import components_of, list_directory, open_file
from croupier.agent.served_files import PartRequest, ServedFiles
from croupier.agent.unix_user import UidRange
from croupier.model.errors import CroupierError, InvalidRequest, NotFound
from croupier.model.ids import FrameworkId, TaskId
from croupier.process.clock import SystemClock

KEY = (FrameworkId("F1"), TaskId("t1"))


@pytest.fixture
def sandboxes(tmp_path: Path) -> Sandboxes:
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


def test_a_missing_sandbox_is_told_without_a_file(sandboxes: Sandboxes) -> None:
    other = (KEY[0], TaskId("t2"))
    with pytest.raises(NotFound, match=r"^no files of task t2: there is no sandbox"):
        list_directory(sandboxes, other, "")


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


# Readers of files leave turns of the loop to everything else.


CHUNKS = 20


class Connection:
    """A request and its answer, whose reader is always as fast as the disk."""

    transport = property(lambda self: self)
    remote = "127.0.0.1"

    def __init__(self) -> None:
        self.got = 0

    def is_closing(self) -> bool:
        return False

    async def write(self, data: bytes) -> None:
        self.got += len(data)

    async def write_eof(self) -> None:
        pass


async def test_a_fast_reader_does_not_hold_the_loop(tmp_path: Path) -> None:
    size = CHUNKS * served_files.CHUNK_BYTES
    (tmp_path / "file").touch()
    os.truncate(tmp_path / "file", size)
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    reader: Any = Connection()
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    try:
        served = ServedFiles(lambda _: None, OutputLinks(SystemClock()))
        key = FrameworkId("F1"), TaskId("t1")
        assert await served._copy(reader, reader, key, None, fd, 0, PartRequest(), lambda _: 0)
    finally:
        other.cancel()
        os.close(fd)
    assert reader.got == size
    assert turns >= CHUNKS


async def test_a_follower_ends_with_the_run_that_it_reads(tmp_path: Path) -> None:
    """The next run of a requeued task may be live before the follower looks again."""
    (tmp_path / "file").write_bytes(b"last words")
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    reader: Any = Connection()
    first_run, next_run = object(), object()
    served = ServedFiles(lambda _: next_run, OutputLinks(SystemClock()))
    key, part = (FrameworkId("F1"), TaskId("t1")), PartRequest(follow=True)
    try:
        async with asyncio.timeout(10):
            assert await served._copy(reader, reader, key, first_run, fd, 0, part, lambda _: 0)
    finally:
        os.close(fd)
    assert reader.got == len(b"last words")


# Files of tasks that their sandboxes do not show.


UIDS = UidRange(2_062_000, 2_062_001)


def test_removed_files_count_once_while_they_are_open(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    before = removed_files([os.getpid()], device)
    with (tmp_path / "gone").open("wb") as gone, (tmp_path / "kept").open("wb") as kept:
        for file in (gone, kept):
            file.write(os.urandom(300_000))
            file.flush()
        again = os.dup(gone.fileno())
        (tmp_path / "gone").unlink()
        found = removed_files([os.getpid(), 0, 4_194_304], device)
        os.close(again)
        assert found.files == before.files + 1
        assert 300_000 <= found.size - before.size < 320_000
        assert removed_files([os.getpid()], device + 1).size == 0
    assert removed_files([os.getpid()], device) == before


def test_processes_belong_to_the_nearest_shim_above(tmp_path: Path) -> None:
    line = "sleep 60 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE) as shim:
        assert shim.stdout is not None
        child = int(shim.stdout.readline())
        try:
            assert sorted(processes_below({shim.pid: "r1"})["r1"]) == sorted([shim.pid, child])
            both = processes_below({shim.pid: "r1", child: "r2"})
            assert both == {"r1": [shim.pid], "r2": [child]}
        finally:
            os.kill(child, 9)
            shim.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
def test_files_in_shared_directories_count_by_their_uid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_size, "is_in_memory", lambda path: path.name == "memory")
    for name in ("tmp", "memory", "sandbox"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(os.urandom(100_000))
        os.chown(tmp_path / name / "file", UIDS.first, 0)
    (tmp_path / "tmp/tree/below").mkdir(parents=True)
    (tmp_path / "tmp/tree/below/file").write_bytes(os.urandom(200_000))
    (tmp_path / "tmp/root").write_bytes(os.urandom(400_000))
    (tmp_path / "tmp/link").symlink_to(tmp_path / "memory")
    for path in ("tmp/tree", "tmp/link", "sandbox"):
        os.chown(tmp_path / path, UIDS.first, 0, follow_symlinks=False)
    hidden = HiddenFiles(UIDS, [tmp_path / "tmp", tmp_path / "memory", tmp_path / "none"])
    hidden.look({})
    sandbox = os.open(tmp_path / "sandbox", os.O_RDONLY)
    try:
        found = hidden.of("r1", sandbox)
        os.chown(sandbox, UIDS.last, 0)
        other = hidden.of("r1", sandbox)
    finally:
        os.close(sandbox)
    assert 300_000 <= found.size < 340_000
    assert (found.files, other.size) == (5, 0)
