"""The state file of `croupier cron`."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.apps.controller.store import StateError
from croupier.apps.cron.core.board import Stored
from croupier.apps.cron.core.job import KeepCursor, KeepRun, LaunchRun, RunState, ScheduledRun
from croupier.apps.cron.state_file import opened
from croupier.model.errors import NotFound

RUN = ScheduledRun(
    "a", 1_800_000_000, RunState.RUNNING, 2, 1, 5.5, True, 6.5, None, None, "exit code 3"
)


def test_what_is_committed_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "cron" / "x.db"
    waiting = ScheduledRun("a", RUN.scheduled + 60)
    with opened(path, may_create=True) as state:
        state.keep(framework_id="F1")
        state.commit(
            [KeepCursor("a", 9, "@daily UTC"), KeepRun(RUN), KeepRun(waiting), LaunchRun(RUN)], {}
        )
    with opened(path, may_create=True) as state:
        assert state.fact("framework_id") == "F1"
        assert state.fact("other") == ""
        assert state.load() == {"a": Stored(9, "@daily UTC", (RUN, waiting))}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_run_has_one_row_and_the_last_ended_runs_are_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "x.db", may_create=True) as state:
        state.commit([KeepRun(RUN)], {"a": 3})
        for number in range(1, 6):
            run = replace(RUN, scheduled=RUN.scheduled + number)
            state.commit([KeepRun(run), KeepRun(run.end(RunState.FINISHED, 7.0))], {"a": 3})
        kept = [run.scheduled - RUN.scheduled for run in state.history("a", 100)]
        assert kept == [0, 3, 4, 5]
        assert [run.state for run in state.history(None, 2)] == [RunState.FINISHED] * 2
        assert state.history("b", 100) == []


def test_history_is_read_while_cron_writes(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with opened(path, may_create=True) as state:
        state.commit([KeepRun(RUN)], {})
        with opened(path, may_create=False) as reader:
            assert reader.history("a", 1) == [RUN]
            with pytest.raises(StateError):
                reader.keep(a="b")


def test_a_full_disk_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with opened(path, may_create=True) as state:
        pages = state._connection.execute("PRAGMA page_count").fetchone()[0]
        state._connection.execute(f"PRAGMA max_page_count = {pages}")
        runs = [KeepRun(replace(RUN, job=f"j{n}", detail="x" * 4000)) for n in range(50)]
        with pytest.raises(StateError, match=r"cannot write .*x\.db: .* is full"):
            state.commit(runs, {})
        assert state.history(None, 100) == []


def test_a_row_that_no_release_writes_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with opened(path, may_create=True) as state:
        state.commit([KeepRun(RUN), KeepCursor("a", 1, "x")], {})
        state._connection.execute("UPDATE run SET state = 'waiting', job = 'a'")
        state._connection.execute("UPDATE run SET state = 'odd'")
        with pytest.raises(StateError, match="is damaged"):
            state.history(None, 1)


def test_there_is_no_history_before_the_first_run(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="has not run"), opened(tmp_path / "x.db", may_create=False):
        pass
