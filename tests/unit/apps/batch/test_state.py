"""The file that keeps a run: what it holds, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from croupier.apps.batch.machine import NodeState, Row
from croupier.apps.batch.state import BatchState, default_path, opened
from croupier.apps.controller.store import StateError
from croupier.model.errors import Conflict

ROW = Row("work[1]", NodeState.FAILED, 3, 2, 1, "A1", "exit code 1", "last\nlines")


def facts(state: BatchState) -> tuple[str, ...]:
    return tuple(map(state.fact, ("digest", "framework_id", "is_complete")))


def test_a_run_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "below" / "s.sqlite"
    with opened(path) as state:
        assert (facts(state), state.tasks()) == (("", "", ""), [])
        state.begin("d1")
        state.keep(framework_id="F1")
        state.save([ROW, Row("a", NodeState.ACTIVE, 1, 0, 0)])
        state.save([Row("a", NodeState.DONE, 1, 0, 0)])
    with opened(path) as state:
        assert facts(state) == ("d1", "F1", "")
        assert state.tasks() == [Row("a", NodeState.DONE, 1, 0, 0), ROW]
        state.keep(framework_id="", is_complete="1")
        assert facts(state) == ("d1", "", "1")
        state.keep(is_complete="")
        assert facts(state) == ("d1", "", "")
        state.begin("d2")
        assert (facts(state), state.tasks()) == (("d2", "", ""), [])


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with opened(tmp_path / "d" / "s.sqlite") as state:
            state.begin("d")
            files = list((tmp_path / "d").iterdir())
            assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
            assert len(files) == 4  # with the lock, and what SQLite has beside it
        assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(old)


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    in_use = rf"of this job is in use by another copy \(process {os.getpid()}\)"
    with opened(path), pytest.raises(Conflict, match=in_use), opened(path):
        pass
    with opened(path):
        pass


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as state:
        state.save([ROW])
        (pages,) = state._connection.execute("PRAGMA page_count").fetchone()
        state._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StateError, match=r"cannot write the state .*full"):
            state.save([Row(f"t{n}", NodeState.DONE, 1, 0, 0) for n in range(10_000)])
        assert state.tasks() == [ROW]


def test_the_default_path_differs_by_job_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    a, b = (default_path(Path(name)) for name in ("/x/a.toml", "/y/a.toml"))
    assert a != b
    assert a.parent == tmp_path / "croupier" / "batch"
    assert a.name.startswith("a-")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert ".local/state/croupier/batch" in str(default_path(Path("a")))
