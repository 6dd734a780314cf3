"""A store in one SQLite file: WAL, one writer thread, a commit is synced to disk.

Records are rows of kind, id, JSON body and checksum in one table, as `records_json` tells them;
they are read once. One row more has the number of the last commit, written with each. The schema's
version stands in the file. Commands and environments of tasks are among the records: the file is
its owner's alone, and no error quotes them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from croupier.master.core.records import MasterRecord, Record, Registry
from croupier.master.store.checksums import checksum
from croupier.master.store.marker import Marker, marker_path, read_marker, write_marker
from croupier.master.store.records_json import (
    SCHEMA_VERSION,
    Row,
    UnknownKind,
    decode,
    encode,
)
from croupier.master.store.sqlite_errors import is_damage, meaning
from croupier.master.store.wal import damage
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.store_position import StorePosition

# "crou" in ASCII: tells our files from others'.
APPLICATION_ID = 0x63726F75
# Rows have had a checksum from this version on, and there has been a number of commits.
SEALED_VERSION = 3
# What a burst of commits leaves of the log beside the file.
MAX_LOG_BYTES = 64 * 1024 * 1024
WHAT_TO_DO = (
    "restore it from a backup together with its -wal file; or, to begin a new cluster, move both"
    " away and start with --recover=new-cluster: nothing is left of the old one, and its agents"
    " join after croupier-agent --recover=cleanup"
)
# The row of the number of commits; no kind of record has this name.
HEAD = "head"

T = TypeVar("T")
Place = tuple[int, int]


class SqliteStore:
    """Keeps records in the file at `path`; the master that has it open locks it.

    Attributes:
        commits: the number of the last durable commit.
        marked: the position in the marker beside the file, as it was found.
    """

    def __init__(self, path: Path, *, may_begin_anew: bool = False) -> None:
        """Nothing is opened before `load`.

        With `may_begin_anew` a cluster begins though the marker says that there was one.
        """
        self._path, self._may_begin_anew = path, may_begin_anew
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None
        self._places: dict[Path, Place] = {}
        self._cluster = ""
        self.commits = 0
        self.marked: StorePosition | None = None

    async def load(self) -> Registry:
        """Open the file, making it if there is none, and read it.

        Raises:
            Unavailable: if it cannot be opened, or another master has it open.
            InvalidRequest: if it is damaged, not ours, of a newer version, or lost.
        """
        return await self._in_thread(self._load)

    async def commit(self, records: Sequence[Record]) -> None:
        """Write `records` in one transaction and sync it.

        Raises:
            Unavailable: if the disk is full or fails, or the file was removed; the next `load`
                finds all or nothing.
        """
        await self._in_thread(lambda: self._commit(records))

    async def mark(self, position: StorePosition) -> None:
        """Write `position` into the marker.

        Raises:
            Unavailable: if that cannot be done.
        """
        await self._in_thread(lambda: self._mark(Marker(self._cluster, position)))

    async def check(self) -> None:
        """Look whether the open file is still the one at its path.

        Raises:
            Unavailable: if it is not.
        """
        await self._in_thread(self._check_places)

    async def close(self) -> None:
        """Close the file."""
        await self._in_thread(self._close)
        self._thread.shutdown()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _load(self) -> Registry:
        try:
            marker = self._look_beside()
            registry = self._read(self._open())
            self._check_marker(marker, registry.master)
            self._places = {path: _place(path) for path in (self._path, self._log_path)}
        except sqlite3.Error as error:
            self._close()
            # The cause may quote records.
            raise self._refusal(error) from None
        except UnicodeDecodeError:
            # SQLite quotes the schema in its error, and that is no text.
            self._close()
            raise self._damaged("is corrupt (its schema is no text)") from None
        except OSError as error:
            self._close()
            raise Unavailable(f"cannot open the store {self._path}: {error.strerror}") from error
        except BaseException:
            self._close()
            raise
        else:
            return registry

    def _refusal(self, error: sqlite3.Error) -> InvalidRequest | Unavailable:
        directory = self._path.parent
        if not directory.is_dir():
            why = f"there is no directory {directory}"
            return Unavailable(f"cannot open the store {self._path}: {why}")
        if is_damage(error):
            return self._damaged(f"is corrupt or not a database ({meaning(error)})")
        return Unavailable(f"cannot open the store {self._path}: {meaning(error)}")

    def _damaged(self, what: str) -> InvalidRequest:
        return InvalidRequest(f"the store {self._path} {what}: {WHAT_TO_DO}")

    @property
    def _log_path(self) -> Path:
        return self._path.with_name(self._path.name + "-wal")

    def _look_beside(self) -> Marker | None:
        """Look at the files beside the database before SQLite changes them.

        Raises:
            InvalidRequest: if durable commits are missing, or the whole database is.
        """
        if not self._path.parent.is_dir():
            return None
        if os.statvfs(self._path.parent).f_flag & os.ST_RDONLY:
            raise Unavailable(f"cannot open the store {self._path}: the file system is read-only")
        marker = read_marker(self._path)
        is_there = self._path.exists() and self._path.stat().st_size > 0
        has_log = self._log_path.exists() and self._log_path.stat().st_size > 0
        if not is_there and (marker or has_log) and not self._may_begin_anew:
            raise InvalidRequest(self._lost(marker))
        what = damage(self._log_path)
        # A master that runs writes it while we read.
        if what and damage(self._log_path) == what:
            raise self._damaged(f"has lost commits: in {self._log_path.name} {what}")
        return marker

    def _lost(self, marker: Marker | None) -> str:
        known = f"of cluster {marker.cluster}" if marker else "of a cluster"
        told_by = marker_path(self._path) if marker else self._log_path
        return (
            f"the store {self._path} is empty or missing, and {told_by.name} beside it is"
            f" {known}: {WHAT_TO_DO}"
        )

    def _check_marker(self, marker: Marker | None, master: MasterRecord | None) -> None:
        self._cluster = master.cluster if master else ""
        if marker is None or self._may_begin_anew:
            return
        if master is None:
            raise InvalidRequest(self._lost(marker))
        if marker.cluster != master.cluster:
            raise InvalidRequest(
                f"the store {self._path} is of cluster {master.cluster}, and"
                f" {marker_path(self._path)} says {marker.cluster}: put the right database there,"
                " or remove that file if this one is"
            )
        self.marked = marker.position

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
        self._check_pages(connection)
        with _transaction(connection):
            if version == 0:
                _make_table(connection)
            elif version < SCHEMA_VERSION:
                self._migrate(connection)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        return connection

    def _version(self, connection: sqlite3.Connection) -> int:
        """Which schema the file has; 0 if it is new.

        Raises:
            InvalidRequest: if it is another's, damaged, or of a newer release.
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
        names = [row[1] for row in connection.execute("PRAGMA table_info(records)")]
        encoding = connection.execute("PRAGMA encoding").fetchone()[0]
        if version < 1 or ("crc" in names) != (version >= SEALED_VERSION) or encoding != "UTF-8":
            raise self._damaged("is damaged (its head and its table do not fit)")
        return version

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Tell every record as this release does; an older one must not read what follows."""
        self._path.chmod(0o600)
        rows = [self._decoded(*row) for row in _plain_rows(connection)]
        connection.execute("ALTER TABLE records ADD COLUMN crc INTEGER NOT NULL DEFAULT 0")
        _write(connection, [encode(record) for record in rows])
        _write(connection, [_head(0)])

    def _check_pages(self, connection: sqlite3.Connection) -> None:
        faults = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
        if faults != ["ok"]:
            raise self._damaged(f"is corrupt ({' '.join(faults[0].split())[:200]})")

    def _read(self, connection: sqlite3.Connection) -> Registry:
        registry, commits = Registry(), None
        for kind, row_id, body, crc in _sealed_rows(connection):
            if crc != checksum(kind, row_id, body):
                name = _name(kind, row_id)
                raise self._damaged(f"is damaged (the checksum of {name} does not match)")
            if kind == HEAD.encode():
                commits = int(json.loads(body)["commits"])
            else:
                registry.apply(self._decoded(kind, row_id, body))
        if commits is None:
            raise self._damaged("is damaged (the number of its commits is missing)")
        self.commits = commits
        return registry

    def _decoded(self, kind: bytes, row_id: bytes, body: bytes) -> Record:
        try:
            return decode(kind.decode(), body)
        except UnknownKind as error:
            raise InvalidRequest(
                f"the store {self._path} is of a newer release ({error}): use that release"
            ) from None
        except (InvalidRequest, UnicodeDecodeError) as error:
            why = str(error) if isinstance(error, InvalidRequest) else "it is no text"
            what = f"holds a record, {_name(kind, row_id)}, that cannot be read ({why})"
            raise self._damaged(what) from None

    def _commit(self, records: Sequence[Record]) -> None:
        assert self._connection is not None
        # The last of each counts.
        rows = {(row.kind, row.id): row for row in map(encode, records)}
        commits = self.commits + 1
        try:
            with _transaction(self._connection):
                _write(self._connection, [*rows.values(), _head(commits)])
        except sqlite3.Error as error:
            raise Unavailable(f"cannot write the store {self._path}: {meaning(error)}") from None
        # What is durable in a file without a name is not durable.
        self._check_places()
        self.commits = commits
        for record in records:
            if isinstance(record, MasterRecord):
                self._began(record)

    def _began(self, record: MasterRecord) -> None:
        """Have the marker say which cluster this is, before anybody is told."""
        self._cluster = record.cluster
        name = record.terms[-1].name if record.terms else ""
        position = StorePosition(record.generation, record.epoch, name, self.commits)
        self._mark(Marker(record.cluster, position))

    def _mark(self, marker: Marker) -> None:
        try:
            write_marker(self._path, replace(marker, position=replace(marker.position, proof="")))
        except OSError as error:
            path = marker_path(self._path)
            raise Unavailable(f"cannot write {path}: {error.strerror}") from error

    def _check_places(self) -> None:
        for path, place in self._places.items():
            try:
                is_there = _place(path) == place
            except OSError:
                is_there = False
            if not is_there:
                raise Unavailable(
                    f"{path} was removed or replaced while this master had it open: what it"
                    " commits from now on would be lost. Put the file back, or restore it from a"
                    " backup, and start the master again"
                )

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


def _make_table(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE records"
        " (kind TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL, crc INTEGER NOT NULL,"
        " PRIMARY KEY (kind, id))"
    )
    _write(connection, [_head(0)])


def _head(commits: int) -> Row:
    return Row(HEAD, HEAD, json.dumps({"commits": commits}))


def _write(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    connection.executemany(
        "DELETE FROM records WHERE kind = ? AND id = ?",
        [(row.kind, row.id) for row in rows if row.body is None],
    )
    connection.executemany(
        "INSERT INTO records (kind, id, body, crc) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body, crc = excluded.crc",
        [
            (*row, checksum(row.kind.encode(), row.id.encode(), row.body.encode()))
            for row in rows
            if row.body is not None
        ],
    )


# As bytes: a text that is none would be quoted by the error.
_COLUMNS = "CAST(kind AS BLOB), CAST(id AS BLOB), CAST(body AS BLOB)"


def _plain_rows(connection: sqlite3.Connection) -> Iterable[tuple[bytes, bytes, bytes]]:
    return connection.execute(f"SELECT {_COLUMNS} FROM records ORDER BY rowid").fetchall()  # noqa: S608


def _sealed_rows(
    connection: sqlite3.Connection,
) -> Iterable[tuple[bytes, bytes, bytes, int]]:
    query = f"SELECT {_COLUMNS}, crc FROM records ORDER BY rowid"  # noqa: S608 - of our own
    return connection.execute(query).fetchall()


def _name(kind: bytes, row_id: bytes) -> str:
    """What a record is called; what is damaged may be in it, but never a body."""
    return repr(f"{kind[:40].decode(errors='replace')} {row_id[:80].decode(errors='replace')}")


def _place(path: Path) -> Place:
    """Which file has this name.

    Raises:
        OSError: if none has.
    """
    found = path.stat()
    return found.st_dev, found.st_ino
