"""The file that keeps a run: what it holds, and what is refused."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from croupier.apps.batch.machine import NodeState
from croupier.apps.batch.state import BatchState, Row, Run, StateError, default_path
from croupier.model.errors import Conflict

ROW = Row("work[1]", NodeState.FAILED, 3, 2, 1, "A1", "exit code 1", "last\nlines")


def test_a_run_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "below" / "s.sqlite"
    with BatchState(path) as state:
        assert (state.run(), state.rows()) == (Run(), [])
        state.begin("d1")
        state.set_framework("F1")
        state.save([ROW, Row("a", NodeState.ACTIVE, 1, 0, 0)])
        state.save([Row("a", NodeState.DONE, 1, 0, 0)])
    with BatchState(path) as state:
        assert state.run() == Run("d1", "F1", False)
        assert state.rows() == [Row("a", NodeState.DONE, 1, 0, 0), ROW]
        state.set_complete()
        assert state.run() == Run("d1", "", True)
        state.reopen()
        assert state.run() == Run("d1", "", False)
        state.begin("d2")
        assert (state.run(), state.rows()) == (Run("d2"), [])


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with BatchState(tmp_path / "d" / "s.sqlite") as state:
            state.begin("d")
            files = list((tmp_path / "d").iterdir())
            assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
            assert len(files) == 4  # with the lock, and what SQLite has beside it
        assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(old)


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with (
        BatchState(path),
        pytest.raises(Conflict, match=rf"\(process {os.getpid()}\) runs this job"),
    ):
        BatchState(path)
    with BatchState(path):
        pass


def test_other_files_are_refused_and_unchanged(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"no database " * 1000)
    with pytest.raises(StateError, match=r"is damaged .*; move it away"):
        BatchState(text)
    assert text.read_bytes() == b"no database " * 1000
    other = tmp_path / "other"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(StateError, match="database of another program"):
        BatchState(other)
    newer = tmp_path / "newer"
    with BatchState(newer):
        pass
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StateError, match="of another release"):
        BatchState(newer)


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with BatchState(path) as state:
        state.save([Row(f"t{n}", NodeState.DONE, 1, 0, 0) for n in range(1000)])
    content = bytearray(path.read_bytes())
    content[4096:20000] = b"\xff" * (20000 - 4096)
    path.write_bytes(content)
    with pytest.raises(StateError, match="damaged") as caught:
        BatchState(path)
    assert "\n" not in str(caught.value)


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot open the state"):
        BatchState(tmp_path / "file" / "s.sqlite")


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    with BatchState(tmp_path / "s") as state:
        state.save([ROW])
        (pages,) = state._connection.execute("PRAGMA page_count").fetchone()
        state._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StateError, match=r"cannot write the state .*full"):
            state.save([Row(f"t{n}", NodeState.DONE, 1, 0, 0) for n in range(10_000)])
        assert state.rows() == [ROW]


def test_the_default_path_differs_by_job_file(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    a, b = (default_path(Path(name), environment) for name in ("/x/a.toml", "/y/a.toml"))
    assert a != b
    assert a.parent == tmp_path / "croupier" / "batch"
    assert a.name.startswith("a-")
    assert ".local/state/croupier/batch" in str(default_path(Path("a"), {}))
