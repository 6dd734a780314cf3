"""The durable state of an application: a SQLite file with named facts and own tables; a lock.

Rule: each change is on disk when the method returns. The file is open to its owner only. The lock
refuses a second running copy.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from croupier.model.errors import Conflict, CroupierError, Unavailable

# The version of all formats; release 0.1 writes it, too.
VERSION: Final = 1


class StateError(CroupierError):
    """The state cannot be read or written."""


class Store:
    """An open file; a context manager. One process at a time writes. A subclass is of one command.

    Attributes:
        command: such as `croupier cron`, for errors.
        application: SQLite's application id.
        tables: SQL that makes them.
        facts: the table of names and values.
    """

    command: ClassVar[str]
    application: ClassVar[int]
    tables: ClassVar[str]
    facts: ClassVar[str]

    def __init__(self, path: Path, *, may_create: bool = True) -> None:
        """Open the file; without `may_create` only for reading.

        Raises StateError if it is damaged, of a newer release, or cannot be opened.
        """
        self.path = path
        with self.errors("open"):
            if may_create:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                # SQLite gives its files beside the database the same mode.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = sqlite3.connect(path, timeout=5.0, isolation_level=None)
            try:
                self._prepare(may_create=may_create)
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()

    def fact(self, name: str) -> str:
        """Return the latest value of a fact; empty if there is none."""
        return str(dict(self.rows(f"SELECT * FROM {self.facts}")).get(name, ""))  # noqa: S608

    def keep(self, **facts: str) -> None:
        """Store facts in one transaction."""
        with self.writing() as connection:
            self.put(connection, **facts)

    def put(self, connection: sqlite3.Connection, **facts: str) -> None:
        """Store facts in the open transaction."""
        query = f"INSERT OR REPLACE INTO {self.facts} VALUES (?, ?)"  # noqa: S608
        connection.executemany(query, facts.items())

    def rows(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Return the rows of a query."""
        with self.errors("read"):
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Open one durable transaction.

        Raises StateError if the disk does not take it; nothing is changed then.
        """
        with self.errors("write"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def _prepare(self, *, may_create: bool) -> None:
        connection = self._connection
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if may_create and not (tables or application):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(
                f"BEGIN; {self.tables} PRAGMA application_id = {self.application};"
                f" PRAGMA user_version = {VERSION}; COMMIT;"
            )
        elif application != self.application:
            raise StateError(f"{self.path} is no state of {self.command}")
        elif version > VERSION:
            raise StateError(f"{self.path} is of a newer release of Croupier, which must read it")
        connection.execute("PRAGMA synchronous = FULL")
        if not may_create:
            connection.execute("PRAGMA query_only = 1")
            return
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            raise sqlite3.DatabaseError(" ".join(result.split()))

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Turn errors of the file, and values that no release writes, into one line."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StateError(f"cannot {what} the state {self.path}: {error}") from None
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise StateError(
                f"the state {self.path} is damaged ({error}): restore it, or move it away to begin"
                " anew"
            ) from None
        except OSError as error:
            raise StateError(f"cannot {what} the state {self.path}: {error.strerror}") from None


def state_directory(command: str) -> Path:
    """Return where a command keeps its state: below `$XDG_STATE_HOME/croupier/`."""
    home = Path(os.environ.get("XDG_STATE_HOME", ""))
    base = home if home.is_absolute() else Path.home() / ".local" / "state"
    return base / "croupier" / command


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file at `path`, which the kernel releases when this process ends.

    Makes its directory, for its owner only. `what` names the state for people.

    Raises:
        Conflict: if another process holds it.
        Unavailable: if the file cannot be made.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(f"cannot make {path}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            by = f" (process {holder})" if holder.isdigit() else ""
            raise Conflict(f"{what} is in use by another copy{by}") from None
        with suppress(OSError):  # a full disk: the lock holds without the number
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
