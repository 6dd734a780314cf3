"""A store in one SQLite file: WAL, one writer thread, a commit is synced to disk.

Records are rows of kind, id and JSON body in one table, as `records_json` tells them; they
are read once. The schema's version stands in the file. Commands and environments of tasks
are among them: the file is its owner's alone.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from croupier.master.core.records import Record, Registry
from croupier.master.store.records_json import SCHEMA_VERSION, Row, decode, encode
from croupier.model.errors import InvalidRequest, Unavailable

# "crou" in ASCII: tells our files from others'.
APPLICATION_ID = 0x63726F75
# What a burst of commits leaves of the log beside the file.
MAX_LOG_BYTES = 64 * 1024 * 1024
WHAT_TO_DO = (
    "restore it from a backup, or move it away together with its -wal file, which begins a new"
    " cluster: nothing is left of the old one, and its agents join after croupier-agent"
    " --recover=cleanup"
)

T = TypeVar("T")


class SqliteStore:
    """Keeps records in the file at `path`; the master that has it open locks it."""

    def __init__(self, path: Path) -> None:
        """Nothing is opened before `load`."""
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None

    async def load(self) -> Registry:
        """Open the file, making it if there is none, and read it.

        Raises:
            Unavailable: if it cannot be opened, or another master has it open.
            InvalidRequest: if it is corrupt, not ours, or of a newer version.
        """
        return await self._in_thread(self._load)

    async def commit(self, records: Sequence[Record]) -> None:
        """Write `records` in one transaction and sync it.

        Raises:
            Unavailable: if the disk is full or fails; the next `load` finds all or nothing.
        """
        await self._in_thread(lambda: self._commit(records))

    async def close(self) -> None:
        """Close the file."""
        await self._in_thread(self._close)
        self._thread.shutdown()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _load(self) -> Registry:
        try:
            return self._read(self._open())
        except sqlite3.OperationalError as error:
            self._close()
            directory = Path(self._path).parent
            why = _meaning(error) if directory.is_dir() else f"there is no directory {directory}"
            raise Unavailable(f"cannot open the store {self._path}: {why}") from error
        except sqlite3.DatabaseError as error:
            self._close()
            raise InvalidRequest(
                f"the store {self._path} is corrupt or not a database ({error}): {WHAT_TO_DO}"
            ) from error
        except BaseException:
            self._close()
            raise

    def _open(self) -> sqlite3.Connection:
        with suppress(FileExistsError, FileNotFoundError, PermissionError, IsADirectoryError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        # Only ever used in the one thread, but closed by whichever ends last.
        connection = sqlite3.connect(
            self._path, timeout=1.0, isolation_level=None, check_same_thread=False
        )
        self._connection = connection
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        version = self._version(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {MAX_LOG_BYTES}")
        with _transaction(connection):
            connection.execute(
                "CREATE TABLE IF NOT EXISTS records"
                " (kind TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL,"
                " PRIMARY KEY (kind, id))"
            )
            if 0 < version < SCHEMA_VERSION:
                self._migrate(connection)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        return connection

    def _version(self, connection: sqlite3.Connection) -> int:
        """Which schema the file has; 0 if it is new.

        Raises:
            InvalidRequest: if it is another's, or of a newer release.
        """
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        owner = int(connection.execute("PRAGMA application_id").fetchone()[0])
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return 0
        if owner != APPLICATION_ID:
            raise InvalidRequest(
                f"{self._path} is a database, but not one of Croupier's: give --store another path"
            )
        if version > SCHEMA_VERSION:
            raise InvalidRequest(
                f"the store {self._path} is of version {version}; this master knows only"
                f" {SCHEMA_VERSION}: use the newer release that wrote it"
            )
        return version

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Tell every record as this release does; an older one must not read what follows."""
        self._path.chmod(0o600)
        for record in self._records(connection):
            _write(connection, [encode(record)])

    def _read(self, connection: sqlite3.Connection) -> Registry:
        faults = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
        if faults != ["ok"]:
            raise sqlite3.DatabaseError(" ".join(faults[0].split()))
        registry = Registry()
        for record in self._records(connection):
            registry.apply(record)
        return registry

    def _records(self, connection: sqlite3.Connection) -> list[Record]:
        rows = connection.execute("SELECT kind, id, body FROM records ORDER BY rowid").fetchall()
        return [self._record(kind, row_id, body) for kind, row_id, body in rows]

    def _record(self, kind: str, row_id: str, body: str) -> Record:
        try:
            return decode(kind, body)
        except InvalidRequest as error:
            raise InvalidRequest(
                f"the store {self._path} holds a {kind} {row_id[:80]!r} that cannot be read"
                f" ({error}): {WHAT_TO_DO}"
            ) from error

    def _commit(self, records: Sequence[Record]) -> None:
        assert self._connection is not None
        # The last of each counts.
        rows = {(row.kind, row.id): row for row in map(encode, records)}
        try:
            with _transaction(self._connection):
                _write(self._connection, list(rows.values()))
        except sqlite3.Error as error:
            raise Unavailable(f"cannot write the store {self._path}: {_meaning(error)}") from error

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Everything within is done, and on disk, or nothing is."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # Some errors have rolled back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _write(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    connection.executemany(
        "DELETE FROM records WHERE kind = ? AND id = ?",
        [(row.kind, row.id) for row in rows if row.body is None],
    )
    connection.executemany(
        "INSERT INTO records (kind, id, body) VALUES (?, ?, ?)"
        " ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body",
        [row for row in rows if row.body is not None],
    )


def _meaning(error: sqlite3.Error) -> str:
    text = str(error)
    if "locked" in text:
        return f"{text} (is another master running with it?)"
    return text
