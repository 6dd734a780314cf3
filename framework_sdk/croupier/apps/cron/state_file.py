"""The state of one cron file, in SQLite: runs, and up to which time each job is decided.

Rule: every commit is on disk before this returns. A run has one row for each job and time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from croupier.apps.cron.core.board import Stored
from croupier.apps.cron.core.effects import Effect, KeepCursor, KeepRun
from croupier.apps.cron.core.run import Run, RunState
from croupier.model.errors import InvalidRequest, NotFound, Unavailable

VERSION: Final = 1
_APPLICATION: Final = 0x43724E31
_SCHEMA: Final = """
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
FRAMEWORK_ID: Final = "framework_id"
FILE: Final = "file"


class StateFile:
    """An open state file. The caller holds its lock, unless it only reads."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._connection = path, connection

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def fact(self, name: str) -> str:
        """Return a fact that `keep_fact` kept; empty if there is none."""
        rows = self._rows("SELECT value FROM fact WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else ""

    def keep_fact(self, name: str, value: str) -> None:
        """Keep a fact durably.

        Raises:
            Unavailable: if the disk does not take it.
        """
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value))

    def commit(self, effects: Iterable[Effect], kept: dict[str, int]) -> None:
        """Keep runs and cursors in one durable commit, and drop the oldest ended runs.

        Args:
            effects: those of other kinds are ignored.
            kept: how many ended runs of each job are kept; 100 of others.

        Raises:
            Unavailable: if the disk does not take it.
        """
        wanted = [effect for effect in effects if isinstance(effect, KeepRun | KeepCursor)]
        if not wanted:
            return
        with self._writing() as connection:
            for effect in wanted:
                if isinstance(effect, KeepCursor):
                    row = (effect.job, effect.cursor, effect.schedule)
                    connection.execute("INSERT OR REPLACE INTO job VALUES (?, ?, ?)", row)
                else:
                    _keep_run(connection, effect.run, kept.get(effect.run.job, 100))

    def load(self) -> dict[str, Stored]:
        """Return what is known about each job, with the runs that have not ended."""
        where = "state IN ('waiting', 'placing', 'running') ORDER BY job, scheduled"
        found: dict[str, list[Run]] = {}
        for run in self.runs(where):
            found.setdefault(run.job, []).append(run)
        jobs = self._rows("SELECT name, cursor, schedule FROM job ORDER BY name")
        return {
            name: Stored(cursor, schedule, tuple(found.get(name, ())))
            for name, cursor, schedule in jobs
        }

    def history(self, job: str | None, most: int) -> list[Run]:
        """Return the last runs, of one job or of all, oldest first."""
        if job is None:
            runs = self.runs("TRUE ORDER BY scheduled DESC, job DESC LIMIT ?", (most,))
        else:
            runs = self.runs("job = ? ORDER BY scheduled DESC LIMIT ?", (job, most))
        return runs[::-1]

    def runs(self, where: str, values: tuple[object, ...] = ()) -> list[Run]:
        """Return the runs that an SQL condition selects."""
        query = f"SELECT {_COLUMNS} FROM run WHERE {where}"  # noqa: S608 - from this module
        with _errors(self._path):
            return [_run_of(row) for row in self._rows(query, values)]

    def _rows(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        with _errors(self._path):
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with _errors(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


@contextmanager
def opened(path: Path, *, may_create: bool) -> Iterator[StateFile]:
    """Open the state file at `path`; without `may_create` only for reading.

    Raises:
        NotFound: if there is none, and it may not be created.
        InvalidRequest: if it is damaged, is no state of cron, or is of a newer release.
        Unavailable: if it cannot be read or made.
    """
    if may_create:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600, exist_ok=True)
        except OSError as error:
            raise Unavailable(f"cannot make {path}: {error.strerror}") from None
    elif not path.is_file():
        raise NotFound(f"there is no state at {path}: cron has not run with this name")
    with _errors(path):
        connection = sqlite3.connect(path, timeout=5.0, isolation_level=None)
    with closing(connection):
        with _errors(path):
            _prepare(path, connection, may_create=may_create)
        yield StateFile(path, connection)


def _prepare(path: Path, connection: sqlite3.Connection, *, may_create: bool) -> None:
    if not may_create:
        connection.execute("PRAGMA query_only = 1")
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    is_empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if is_empty and not application and may_create:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(
            f"BEGIN; {_SCHEMA} PRAGMA application_id = {_APPLICATION};"
            f" PRAGMA user_version = {VERSION}; COMMIT;"
        )
        return
    if application != _APPLICATION:
        raise InvalidRequest(f"{path} is no state of croupier cron")
    if version > VERSION:
        raise InvalidRequest(f"{path} is of a newer release of Croupier, which must read it")
    connection.execute("PRAGMA synchronous = FULL")


def _keep_run(connection: sqlite3.Connection, run: Run, kept: int) -> None:
    row = (
        run.job, run.scheduled, str(run.state), run.attempt, run.failures, run.not_before,
        run.is_replaced, run.started, run.ended, run.exit_code, run.detail,
    )  # fmt: skip
    marks = ", ".join("?" * len(row))
    connection.execute(f"INSERT OR REPLACE INTO run ({_COLUMNS}) VALUES ({marks})", row)  # noqa: S608
    if run.state.has_ended:
        connection.execute(
            "DELETE FROM run WHERE job = ? AND ended IS NOT NULL AND scheduled <= (SELECT"
            " scheduled FROM run WHERE job = ? AND ended IS NOT NULL"
            " ORDER BY scheduled DESC LIMIT 1 OFFSET ?)",
            (run.job, run.job, kept),
        )


def _run_of(row: tuple[Any, ...]) -> Run:
    job, scheduled, state, attempt, failures, not_before, is_replaced, *rest = row
    return Run(
        job, scheduled, RunState(state), attempt, failures, not_before, bool(is_replaced), *rest
    )


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    """Translate errors of SQLite into one line."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise InvalidRequest(
                f"the state {path} is damaged ({error}): restore it, or move it away to begin anew"
            ) from None
        if code == sqlite3.SQLITE_FULL:
            raise Unavailable(f"cannot write {path}: the disk is full") from None
        raise Unavailable(f"cannot use the state {path}: {error}") from None
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"the state {path} is damaged: {error}") from None
