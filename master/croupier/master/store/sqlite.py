"""A store in one SQLite file: WAL, one writer thread, every commit synced to disk.

Commands and environments of tasks are among the records. The file is readable by its owner only,
and no error quotes a record.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from croupier.master.core.records import MasterRecord, Record
from croupier.master.core.registry import Registry
from croupier.master.store import sqlite_table as table
from croupier.master.store.marker import Marker, StoreLock, marker_path, read_marker, write_marker
from croupier.master.store.protocol import Store
from croupier.master.store.rows import (
    JSON_VERSION,
    SCHEMA_VERSION,
    NewerRecord,
    Row,
    Rows,
    converted,
)
from croupier.master.store.sqlite_table import LOCKED, StoredRow, is_damage, meaning
from croupier.master.store.wal import damage
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.store_position import StorePosition
from croupier.process.durable_files import os_errors_as
from croupier.process.writer_thread import WriterThread

WHAT_TO_DO = (
    "restore it from a backup together with its -wal file; or, to begin a new cluster, move both"
    " away and start with --recover=new-cluster: nothing is left of the old one, and its agents"
    " join after croupier-agent --recover=cleanup"
)

# Records of a commit that takes about as long as one of a single record.
SHORT = 16

T = TypeVar("T")


class SqliteStore(Store):
    """Records in the file at `path`; the master that has it open locks it, and others may read.

    The mark is the position in the marker beside the file, as `load` found it.
    """

    def __init__(self, path: Path, *, may_begin_anew: bool = False) -> None:
        """Prepare; `load` opens the database.

        With `may_begin_anew`, an empty store may begin a new cluster although a marker names one.
        """
        self._path, self._may_begin_anew = path, may_begin_anew
        self._log_path = path.with_name(path.name + "-wal")
        self._thread = WriterThread("store")
        self._connection: sqlite3.Connection | None = None
        self._lock = StoreLock(path)
        # What SQLite counts when another process commits.
        self._foreign_commits = 0
        # Device and inode of each open file.
        self._inodes: dict[Path, tuple[int, int]] = {}
        self._cluster = ""
        self._rows = Rows()

    async def load(self) -> Registry:
        """See `Store`. Opens the file, and creates it if there is none."""
        return await self._thread.run(self._load)

    async def commit(self, records: Sequence[Record]) -> None:
        """See `Store`."""
        await self._thread.run(lambda: self._commit(records), is_short=len(records) <= SHORT)

    async def mark(self, position: StorePosition) -> None:
        """See `Store`. Writes the marker."""
        await self._thread.run(lambda: self._mark(Marker(self._cluster, position)))

    async def check(self) -> None:
        """See `Store`. Checks that the open files are still at their paths."""
        await self._thread.run(self._check_inodes)

    async def close(self) -> None:
        """See `Store`."""
        await self._thread.run(self._close)
        self._thread.shutdown()

    def _load(self) -> Registry:
        try:
            marker = self._check_beside()
            if self._path.parent.is_dir() and not self._lock.take():
                raise self._unavailable(LOCKED)
            registry = self._read(self._open())
            self._check_marker(marker, registry.master)
            self._foreign_commits = table.foreign_commits(self._connected)
            self._inodes = {path: _inode(path) for path in (self._path, self._log_path)}
        except BaseException as error:
            self._close()
            match error:
                # The cause may quote records.
                case sqlite3.Error():
                    raise self._refusal(error) from None
                # Python cannot decode SQLite's error, which quotes a schema that is not UTF-8.
                case UnicodeDecodeError():
                    raise self._damaged("is corrupt (its schema is no text)") from None
                case OSError():
                    raise self._unavailable(str(error.strerror)) from error
            raise
        else:
            return registry

    @property
    def _connected(self) -> sqlite3.Connection:
        assert self._connection is not None, "load comes first"
        return self._connection

    def _refusal(self, error: sqlite3.Error) -> InvalidRequest | Unavailable:
        if not self._path.parent.is_dir():
            return self._unavailable(f"there is no directory {self._path.parent}")
        if is_damage(error):
            return self._damaged(f"is corrupt or not a database ({meaning(error)})")
        return self._unavailable(meaning(error))

    def _unavailable(self, why: str) -> Unavailable:
        return Unavailable(f"cannot open the store {self._path}: {why}")

    def _damaged(self, what: str) -> InvalidRequest:
        return InvalidRequest(f"the store {self._path} {what}: {WHAT_TO_DO}")

    def _check_beside(self) -> Marker | None:
        """Raise InvalidRequest if durable commits are lost, before SQLite changes the files."""
        if not self._path.parent.is_dir():
            return None
        if os.statvfs(self._path.parent).f_flag & os.ST_RDONLY:
            raise self._unavailable("the file system is read-only")
        marker = read_marker(self._path)
        is_there, has_log = (
            path.exists() and path.stat().st_size > 0 for path in (self._path, self._log_path)
        )
        if not is_there and (marker or has_log) and not self._may_begin_anew:
            raise InvalidRequest(self._lost(marker))
        if what := damage(self._log_path):
            raise self._damaged(f"has lost commits: in {self._log_path.name} {what}")
        return marker

    def _lost(self, marker: Marker | None) -> str:
        known = f"of cluster {marker.cluster}" if marker else "of a cluster"
        witness = marker_path(self._path) if marker else self._log_path
        return (
            f"the store {self._path} is empty or missing, and {witness.name} beside it is"
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
        self._connection = connection = table.connect(self._path)
        version = self._version(connection)
        if fault := table.prepare(connection):
            raise self._damaged(f"is corrupt ({fault})")
        with table.transaction(connection):
            if version == 0:
                table.create(connection)
            elif version == JSON_VERSION:
                # Older releases refuse the file from here on.
                table.create(connection, list(map(self._converted, table.stream(connection))))
            table.stamp(connection)
        return connection

    def _version(self, connection: sqlite3.Connection) -> int:
        version, owner, is_consistent = table.read_header(connection)
        if version == 0 and is_consistent:
            return 0
        if owner != table.APPLICATION_ID:
            raise InvalidRequest(
                f"{self._path} is a database, but not one of Croupier's: give --store another path"
            )
        if version > SCHEMA_VERSION:
            raise InvalidRequest(
                f"the store {self._path} is of version {version}; this master knows only"
                f" {SCHEMA_VERSION}: use the newer release that wrote it"
            )
        if not is_consistent or version < JSON_VERSION:
            raise self._damaged("is damaged (its head and its table do not fit)")
        return version

    def _read(self, connection: sqlite3.Connection) -> Registry:
        registry, commits = Registry(), None
        for row in table.stream(connection):
            self._check_intact(row)
            if row.kind == table.HEAD.encode():
                commits = int(row.body)
            else:
                registry.apply(self._decoded(row))
        if commits is None:
            raise self._damaged("is damaged (the number of its commits is missing)")
        self.commits = commits
        return registry

    def _check_intact(self, row: StoredRow) -> None:
        if not row.is_intact:
            raise self._damaged(f"is damaged (the checksum of {row.name} does not match)")

    def _converted(self, row: StoredRow) -> Row:
        self._check_intact(row)
        if row.kind == table.HEAD.encode():
            return table.head(int(json.loads(row.body)["commits"]))
        try:
            return converted(row.kind.decode(), row.body)
        except InvalidRequest as error:
            raise self._unreadable(row, str(error)) from None

    def _decoded(self, row: StoredRow) -> Record:
        try:
            return self._rows.decode(row.kind.decode(), row.body)
        except NewerRecord as error:
            raise InvalidRequest(
                f"the store {self._path} is of a newer release ({error}): use that release"
            ) from None
        except InvalidRequest as error:
            raise self._unreadable(row, str(error)) from None
        except UnicodeDecodeError:
            raise self._unreadable(row, "it is no text") from None

    def _unreadable(self, row: StoredRow, why: str) -> InvalidRequest:
        return self._damaged(f"holds a record, {row.name}, that cannot be read ({why})")

    def _commit(self, records: Sequence[Record]) -> None:
        connection = self._connected
        rows = self._rows.encode_latest(records)
        commits = self.commits + 1
        try:
            with table.transaction(connection):
                self._check_foreign_commits(connection)
                table.write(connection, [*rows, table.head(commits)])
        except sqlite3.Error as error:
            raise Unavailable(f"cannot write the store {self._path}: {meaning(error)}") from None
        # A commit to a file that was removed is not durable.
        self._check_inodes()
        self.commits = commits
        for record in records:
            if isinstance(record, MasterRecord):
                # The marker names the cluster before the term becomes visible.
                self._cluster = record.cluster
                self._mark(Marker(record.cluster, record.position(self.commits)))

    def _check_foreign_commits(self, connection: sqlite3.Connection) -> None:
        """Raise Unavailable if another process has committed, so as not to write over that."""
        if table.foreign_commits(connection) != self._foreign_commits:
            raise Unavailable(
                f"another process has written to the store {self._path}, which only one master may"
                " do: end it, and start the master again"
            )

    def _mark(self, marker: Marker) -> None:
        with os_errors_as(Unavailable, f"cannot write {marker_path(self._path)}"):
            write_marker(self._path, marker)

    def _check_inodes(self) -> None:
        for path, inode in self._inodes.items():
            try:
                is_there = _inode(path) == inode
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
        self._lock.release()


def _inode(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
