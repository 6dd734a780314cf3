"""The state of one cron file, in SQLite: runs, and up to which time each job is decided.

Rule: a run has one row for each job and time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

from croupier.apps.controller.store import Store, state_directory
from croupier.apps.cron.core.board import Stored
from croupier.apps.cron.core.job import Effect, KeepCursor, KeepRun, RunState, ScheduledRun
from croupier.model.errors import NotFound

_TABLES: Final = """
CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE job (name TEXT PRIMARY KEY, cursor INTEGER NOT NULL, schedule TEXT NOT NULL) STRICT;
CREATE TABLE run (
    job TEXT NOT NULL, scheduled INTEGER NOT NULL, state TEXT NOT NULL,
    attempt INTEGER NOT NULL, failures INTEGER NOT NULL, not_before REAL NOT NULL,
    is_replaced INTEGER NOT NULL, started REAL, ended REAL, exit_code INTEGER,
    detail TEXT NOT NULL, PRIMARY KEY (job, scheduled)
) STRICT, WITHOUT ROWID;
"""
_COLUMNS: Final = (
    "job, scheduled, state, attempt, failures, not_before, is_replaced, started, ended,"
    " exit_code, detail"
)


class StateFile(Store):
    """An open state file. The caller holds its lock, unless it only reads."""

    command, application = "croupier cron", 0x43724E31
    tables, facts = _TABLES, "fact"

    def commit(self, effects: Iterable[Effect], kept: dict[str, int]) -> None:
        """Store runs and cursors in one durable commit, and delete the oldest ended runs.

        Args:
            effects: those of other kinds are ignored.
            kept: how many ended runs of each job are kept; 100 of others.

        Raises:
            StateError: if the disk does not take it.
        """
        wanted = [effect for effect in effects if isinstance(effect, KeepRun | KeepCursor)]
        if not wanted:
            return
        with self.writing() as connection:
            for effect in wanted:
                if isinstance(effect, KeepCursor):
                    row = (effect.job, effect.cursor, effect.schedule)
                    connection.execute("INSERT OR REPLACE INTO job VALUES (?, ?, ?)", row)
                else:
                    _keep_run(connection, effect.run, kept.get(effect.run.job, 100))

    def load(self) -> dict[str, Stored]:
        """Return what is known about each job, with the runs that have not ended."""
        where = "state IN ('waiting', 'placing', 'running') ORDER BY job, scheduled"
        found: dict[str, list[ScheduledRun]] = {}
        for run in self.runs(where):
            found.setdefault(run.job, []).append(run)
        jobs = self.rows("SELECT name, cursor, schedule FROM job ORDER BY name")
        return {
            name: Stored(cursor, schedule, tuple(found.get(name, ())))
            for name, cursor, schedule in jobs
        }

    def history(self, job: str | None, most: int) -> list[ScheduledRun]:
        """Return the last runs, of one job or of all, oldest first."""
        if job is None:
            runs = self.runs("TRUE ORDER BY scheduled DESC, job DESC LIMIT ?", (most,))
        else:
            runs = self.runs("job = ? ORDER BY scheduled DESC LIMIT ?", (job, most))
        return runs[::-1]

    def runs(self, where: str, values: tuple[object, ...] = ()) -> list[ScheduledRun]:
        """Return the runs that an SQL condition selects."""
        query = f"SELECT {_COLUMNS} FROM run WHERE {where}"  # noqa: S608 - from this module
        with self.errors("read"):
            return [_run_of(row) for row in self.rows(query, values)]


def state_path(name: str, chosen: Path | None) -> Path:
    """Return the state file of a cron file's name, or the one that was chosen."""
    return chosen or state_directory("cron") / f"{name}.db"


def opened(path: Path, *, may_create: bool) -> StateFile:
    """Open the state file at `path`; without `may_create` only for reading.

    Raises:
        NotFound: if there is none, and it may not be created.
        StateError: if it cannot be used.
    """
    if not may_create and not path.is_file():
        raise NotFound(f"there is no state at {path}: cron has not run with this name")
    return StateFile(path, may_create=may_create)


def _keep_run(connection: sqlite3.Connection, run: ScheduledRun, kept: int) -> None:
    row = astuple(run)
    marks = ", ".join("?" * len(row))
    connection.execute(f"INSERT OR REPLACE INTO run ({_COLUMNS}) VALUES ({marks})", row)  # noqa: S608
    if run.state.has_ended:
        connection.execute(
            "DELETE FROM run WHERE job = ? AND ended IS NOT NULL AND scheduled <= (SELECT"
            " scheduled FROM run WHERE job = ? AND ended IS NOT NULL"
            " ORDER BY scheduled DESC LIMIT 1 OFFSET ?)",
            (run.job, run.job, kept),
        )


def _run_of(row: tuple[Any, ...]) -> ScheduledRun:
    job, scheduled, state, attempt, failures, not_before, is_replaced, *rest = row
    return ScheduledRun(
        job, scheduled, RunState(state), attempt, failures, not_before, bool(is_replaced), *rest
    )
