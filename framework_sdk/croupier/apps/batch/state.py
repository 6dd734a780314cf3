"""What is kept of a run, so that `--resume` continues it: one SQLite file.

Rule: a task is stored as active before it is handed to the cluster, and its end before the cluster
may forget it. Each change is on disk when the method returns. The file is open to its owner only,
and a lock beside it refuses a second process.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from croupier.apps.batch.machine import NodeState
from croupier.model.errors import Conflict, CroupierError

SCHEMA: Final = 1
_APPLICATION: Final = 0x43727042  # "CrpB"
_TABLES: Final = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tasks (
    name TEXT PRIMARY KEY, state TEXT NOT NULL, launches INTEGER NOT NULL,
    failures INTEGER NOT NULL, drops INTEGER NOT NULL, agent_id TEXT NOT NULL,
    reason TEXT NOT NULL, output TEXT NOT NULL
) WITHOUT ROWID;
"""


class StateError(CroupierError):
    """The state cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Row:
    """What is stored of a task that was started at least once.

    Attributes:
        state: WAITING for a task that is to be started again.
        agent_id: of the latest attempt that failed.
        reason: why that attempt failed; empty if none did.
        output: the last lines of a task that failed.
    """

    name: str
    state: NodeState
    launches: int
    failures: int
    drops: int
    agent_id: str = ""
    reason: str = ""
    output: str = ""

    @property
    def columns(self) -> tuple[str | int, ...]:
        """The values of the table's columns, in order."""
        return (
            self.name,
            self.state.value,
            self.launches,
            self.failures,
            self.drops,
            self.agent_id,
            self.reason,
            self.output,
        )


@dataclass(frozen=True, slots=True)
class Run:
    """What is stored of a run.

    Attributes:
        digest: of its plan; empty if there is no run.
        framework_id: under which the cluster knows its tasks; empty if it knows none.
        is_complete: whether all of its tasks have ended.
    """

    digest: str = ""
    framework_id: str = ""
    is_complete: bool = False


def default_path(job_file: Path, environment: Mapping[str, str]) -> Path:
    """Return the path of the state of a job file, below $XDG_STATE_HOME/croupier/batch."""
    home = environment.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    mark = hashlib.sha256(os.fsencode(job_file.resolve())).hexdigest()[:12]
    return Path(home) / "croupier" / "batch" / f"{job_file.stem}-{mark}.sqlite"


class BatchState:
    """The state of one job file; a context manager that holds its lock."""

    def __init__(self, path: Path) -> None:
        """Lock and open the state, and create it if there is none.

        Raises:
            Conflict: if another process has it open.
            StateError: if it is damaged, of a newer release, or cannot be opened.
        """
        self.path = path
        with self._guarded("open"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._take_lock()
            self._connection = self._opened()
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()
        os.close(self._lock)

    def run(self) -> Run:
        """Return what is stored of the run."""
        with self._guarded("read"):
            stored = dict(self._connection.execute("SELECT key, value FROM run"))
        return Run(
            stored.get("digest", ""),
            stored.get("framework_id", ""),
            bool(stored.get("is_complete", "")),
        )

    def rows(self) -> list[Row]:
        """Return all stored tasks."""
        with self._guarded("read"):
            found = self._connection.execute("SELECT * FROM tasks").fetchall()
            return [Row(name, NodeState(state), *rest) for name, state, *rest in found]

    def begin(self, digest: str) -> None:
        """Forget the run that is stored, and begin another."""
        with self._guarded("write"), self._transaction():
            self._connection.execute("DELETE FROM tasks")
            self._connection.execute("DELETE FROM run")
            self._set(digest=digest)

    def set_framework(self, framework_id: str) -> None:
        """Store the framework's id; empty when the cluster has no tasks of the run any more."""
        with self._guarded("write"), self._transaction():
            self._set(framework_id=framework_id)

    def set_complete(self) -> None:
        """Store that all tasks have ended."""
        with self._guarded("write"), self._transaction():
            self._set(framework_id="", is_complete="1")

    def reopen(self) -> None:
        """Store that tasks of a complete run are to run again."""
        with self._guarded("write"), self._transaction():
            self._set(is_complete="")

    def save(self, rows: Iterable[Row]) -> None:
        """Store tasks, together."""
        values = [row.columns for row in rows]
        with self._guarded("write"), self._transaction():
            self._connection.executemany(
                "INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values
            )

    def _set(self, **pairs: str) -> None:
        self._connection.executemany("INSERT OR REPLACE INTO run VALUES (?, ?)", pairs.items())

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.pread(self._lock, 20, 0).decode(errors="replace").strip()
            raise Conflict(
                f"another croupier batch (process {other or 'unknown'}) runs this job; its state is"
                f" {self.path}"
            ) from None
        with self._guarded("write"):
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _opened(self) -> sqlite3.Connection:
        with self._guarded("open"):
            # SQLite gives its files beside the database the same mode.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            connection = sqlite3.connect(self.path, isolation_level=None, timeout=5)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if not (version or application):
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if tables:
                raise StateError(f"{self.path} is a database of another program")
            connection.executescript(
                f"BEGIN; {_TABLES} PRAGMA application_id = {_APPLICATION};"
                f"PRAGMA user_version = {SCHEMA}; COMMIT;"
            )
        elif application != _APPLICATION:
            raise StateError(f"{self.path} is a database of another program")
        elif version != SCHEMA:
            raise StateError(f"the state {self.path} is of another release (version {version})")
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            raise sqlite3.DatabaseError(" ".join(result.split()))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        """Turn errors of the file into one line."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StateError(f"cannot {what} the state {self.path}: {error}") from None
        except (sqlite3.Error, ValueError) as error:
            raise StateError(
                f"the state {self.path} is damaged ({error}); move it away to begin anew"
            ) from None
        except OSError as error:
            raise StateError(f"cannot {what} the state {self.path}: {error.strerror}") from None
