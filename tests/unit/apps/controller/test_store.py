"""The file that keeps the state of an application, and its lock."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from croupier.apps.controller.store import Format, StateError, Store, locked
from croupier.model.errors import Conflict, Unavailable

FORMAT = Format(
    "croupier test", 7, "CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT);", "fact"
)


def test_other_files_are_refused_and_unchanged(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"no database " * 1000)
    with pytest.raises(StateError, match=r"is damaged .*: restore it, or move it away"):
        Store(text, FORMAT)
    assert text.read_bytes() == b"no database " * 1000
    other = tmp_path / "other"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(StateError, match="is no state of croupier test"):
        Store(other, FORMAT)
    newer = tmp_path / "newer"
    with Store(newer, FORMAT) as store:
        store._connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StateError, match="of a newer release"):
        Store(newer, FORMAT)


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Store(path, FORMAT) as store:
        store.keep(**{f"t{n}": "x" * 50 for n in range(1000)})
    content = bytearray(path.read_bytes())
    content[4096:20000] = b"\xff" * (20000 - 4096)
    path.write_bytes(content)
    with pytest.raises(StateError, match="damaged") as caught:
        Store(path, FORMAT)
    assert "\n" not in str(caught.value)


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="cannot open the state"):
        Store(tmp_path / "file" / "s", FORMAT)
    with pytest.raises(Unavailable, match="cannot make"), locked(tmp_path / "file" / "x", "it"):
        pass


def test_a_failed_transaction_changes_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "s", FORMAT) as store:
        store.keep(a="1")

        def interrupted() -> None:
            with store.writing() as connection:
                store.put(connection, a="2")
                raise KeyError

        with pytest.raises(KeyError):
            interrupted()
        assert store.fact("a") == "1"


def test_a_second_copy_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.lock"
    with (
        locked(path, "the state"),
        pytest.raises(Conflict, match=r"in use by another copy \(process \d+\)"),
        locked(path, "the state"),
    ):
        pass
    with locked(path, "the state"):
        pass


def test_a_full_disk_does_not_prevent_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "pwrite", full)
    path = tmp_path / "x.lock"
    with (
        locked(path, "the state"),
        pytest.raises(Conflict, match=r"in use by another copy$"),
        locked(path, "the state"),
    ):
        pass
