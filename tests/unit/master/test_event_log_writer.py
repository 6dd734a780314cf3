"""The writer: ordered and bounded; it never fails the master."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from croupier.master.eventlog import files, writer
from croupier.master.eventlog.writer import Writer
from croupier.model.errors import Unavailable
from tests.harness.broken_descriptors import BROKEN
from tests.harness.eventually import eventually


def text(path: Path) -> str:
    return path.read_text()


def test_data_is_written_in_order(tmp_path: Path) -> None:
    path = tmp_path / "log"
    one = Writer(path, 3)
    for number in range(2000):
        one.put(f"{number}\n".encode())
    one.close()
    assert text(path) == "".join(f"{number}\n" for number in range(2000))
    assert one.written == path.stat().st_size
    assert one.failure is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_old_files_are_deleted_and_numbers_increase(tmp_path: Path) -> None:
    path = tmp_path / "log"
    one = Writer(path, 3)
    for number in range(6):
        one.put(f"body {number}\n".encode())
        one.begin_file(iter([f"head {number + 1}\n".encode()]))
    one.close()
    assert [each.name for each in files.all_of(path)] == ["log.000005", "log.000006", "log"]
    assert text(path) == "head 6\n"
    assert text(tmp_path / "log.000006") == "head 5\nbody 5\n"
    assert files.all_of(tmp_path / "log.000005") == files.all_of(path)


def test_an_existing_log_is_renamed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("before\n")
    (tmp_path / "log.000041").write_text("long before\n")
    (tmp_path / "log.txt").write_text("not ours")
    one = Writer(path, 3)
    one.put(b"now\n")
    one.close()
    assert text(path) == "now\n"
    assert text(tmp_path / "log.000042") == "before\n"
    assert [each.name for each in files.all_of(path)] == ["log.000041", "log.000042", "log"]
    assert text(tmp_path / "log.txt") == "not ours"


def test_devices_links_and_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "link", "pipe"):
        with pytest.raises(Unavailable, match="not a regular file"):
            Writer(tmp_path / name, 3)
    with pytest.raises(Unavailable, match="No such file"):
        Writer(tmp_path / "nowhere" / "log", 3)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "link", "pipe"]


async def test_a_full_disk_ends_only_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = Writer(tmp_path / "log", 3, open_file=lambda _: os.open("/dev/full", os.O_WRONLY))
    one.put(b"x\n")
    await eventually(lambda: one.failure is not None)
    assert one.failure == "No space left on device"
    for _ in range(10):
        one.put(b"x\n")
    one.close()
    assert capsys.readouterr().out.count("event_log_given_up") == 1


@pytest.mark.parametrize("broken", [name for name in BROKEN if name.startswith("E")])
async def test_no_error_of_a_file_escapes(tmp_path: Path, broken: str) -> None:
    with BROKEN[broken]() as fd:
        one = Writer(tmp_path / "log", 3, open_file=lambda _: os.dup(fd))
        for _ in range(200):
            one.put(b"x" * 1000)
        await eventually(lambda: one.failure is not None)
        one.put(b"nothing waits any more")
        one.close()


async def test_a_disk_that_fills_up_at_a_new_file_ends_the_log(tmp_path: Path) -> None:
    def open_file(path: Path) -> int:
        if (tmp_path / "log.000001").exists():
            raise OSError(28, "No space left on device")
        return writer.open_new(path)

    one = Writer(tmp_path / "log", 3, open_file=open_file)
    one.begin_file(iter([b"head\n"]))
    await eventually(lambda: one.failure is not None)
    one.close()


async def test_a_slow_disk_ends_the_log_at_the_bound_of_the_queue(tmp_path: Path) -> None:
    gate = threading.Event()

    def lines() -> Iterator[bytes]:
        gate.wait(10)
        yield from ()

    one = Writer(tmp_path / "log", 3, max_waiting=1000)
    one.begin_file(lines())
    one.put(b"x" * 900)
    assert not one.failure
    one.put(b"x" * 200)
    assert "too much waits" in str(one.failure)
    gate.set()
    one.close()
    assert text(tmp_path / "log") == ""


def test_a_summary_that_fails_ends_the_log(tmp_path: Path) -> None:
    def lines() -> Iterator[bytes]:
        yield b"head\n"
        raise ZeroDivisionError

    one = Writer(tmp_path / "log", 3)
    one.begin_file(lines())
    one.close()
    assert one.failure is not None
    assert "ZeroDivisionError" in one.failure
