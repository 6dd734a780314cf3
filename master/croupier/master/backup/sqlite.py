"""A store in a SQLite file: read as of one commit while a master uses it, and restored."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from croupier.master.backup.copy_file import Snapshot, Witness
from croupier.master.backup.restored import Restored
from croupier.master.core.records import MasterRecord
from croupier.master.store import sqlite_table as table
from croupier.master.store.marker import Marker, StoreLock, marker_path, read_marker, write_marker
from croupier.master.store.rows import SCHEMA_VERSION, Row, decode, encode
from croupier.master.store.sqlite_table import StoredRow, is_damage, meaning
from croupier.master.store.wal import damage
from croupier.model.errors import Conflict, InvalidRequest, Unavailable
from croupier.process.durable_files import os_errors_as, sync_directory

# What is appended to the name of the database that a copy replaces.
REPLACED = ".replaced"
_SCRATCH = ".restoring"


@contextmanager
def sqlite_snapshot(path: Path) -> Iterator[Snapshot]:
    """Read the database at `path` as of one commit; a master may go on writing to it.

    Nothing is written. One transaction reads all rows, and the write-ahead log grows meanwhile.
    Raises InvalidRequest if it is damaged, another program's, or of another release; Unavailable if
    it cannot be read.
    """
    if not path.exists():
        raise InvalidRequest(f"there is no store {path}")
    try:
        log = path.with_name(path.name + "-wal")
        if what := damage(log):
            raise InvalidRequest(f"the store {path} has lost commits: in {log.name} {what}")
        connection = table.connect_to_read(path)
        try:
            connection.execute("BEGIN")
            yield _snapshot(connection, path)
        finally:
            connection.close()
    except sqlite3.Error as error:
        refused = InvalidRequest if is_damage(error) else Unavailable
        raise refused(f"cannot read the store {path}: {meaning(error)}") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"the store {path} is corrupt (its schema is no text)") from None


def _snapshot(connection: sqlite3.Connection, path: Path) -> Snapshot:
    version, owner, is_consistent = table.read_header(connection)
    if owner != table.APPLICATION_ID or not is_consistent or not version:
        raise InvalidRequest(f"{path} is not a store of Croupier, or it is damaged")
    if version != SCHEMA_VERSION:
        raise InvalidRequest(
            f"the store {path} is of version {version}, and this release reads {SCHEMA_VERSION}:"
            " use the release of the master that wrote it"
        )
    head = _only(connection, path, table.HEAD, table.HEAD)
    master = _only(connection, path, "master", "master")
    if head is None:
        raise InvalidRequest(f"the store {path} is damaged (the number of commits is missing)")
    record = None if master is None else decode("master", master)
    assert record is None or isinstance(record, MasterRecord)
    rows = (
        _checked(row, path) for row in table.stream(connection) if row.kind != table.HEAD.encode()
    )
    return Snapshot(record, int(head), rows)


def _only(connection: sqlite3.Connection, path: Path, kind: str, row_id: str) -> bytes | None:
    """Return the body of one record, checked; None if there is none."""
    found = table.one(connection, kind, row_id)
    return None if found is None else _checked(found, path).body


def _checked(row: StoredRow, path: Path) -> Row:
    """Return the row if it is intact. Raises InvalidRequest if the row is damaged."""
    if not row.is_intact:
        raise InvalidRequest(
            f"the store {path} is damaged (the checksum of {row.name} does not match)"
        )
    return Row(row.kind.decode(), row.id.decode(), row.body)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the database at `path`, so that no master opens it; raises Conflict or Unavailable."""
    if not path.parent.is_dir():
        raise Unavailable(f"cannot restore to {path}: there is no directory {path.parent}")
    lock = StoreLock(path)
    with os_errors_as(Unavailable, f"cannot restore to {path}"):
        if not lock.take():
            raise Conflict(f"a master is running with the store {path}: stop it first")
    try:
        yield
    finally:
        lock.release()


def sqlite_witnesses(path: Path) -> list[Witness]:
    """Return the positions in the database at `path`, unless it is damaged, and in its marker.

    Raises InvalidRequest if the marker is damaged; Unavailable if the database cannot be read, or a
    master uses it.
    """
    found = []
    if (marker := read_marker(path)) is not None:
        found.append(Witness(str(marker_path(path)), marker.cluster, marker.position))
    if not _is_there(path):
        return found
    with suppress(InvalidRequest), sqlite_snapshot(path) as snapshot:
        found += snapshot.witness(f"the store {path}")
    return found


def check_free(path: Path, *, replaces: bool) -> None:
    """Raise Conflict if there is a database, unless the operator wants to replace it."""
    log = _beside(path, "-wal")
    if not replaces and (_is_there(path) or _is_there(log)):
        raise Conflict(
            f"there is a store at {path}: give --replace, which keeps it as"
            f" {path.name}{REPLACED}, or restore to another path"
        )


def write_sqlite(path: Path, content: Restored, cluster: str) -> None:
    """Write the restored store at `path`; a database there is kept beside it.

    The caller holds the lock. The new database replaces the old one as a whole: after a crash, the
    path has one of both, or none and a master refuses to start. Raises Unavailable if it cannot be
    written.
    """
    scratch = _beside(path, _SCRATCH)
    try:
        _write_database(scratch, content)
        write_marker(path, Marker(cluster, content.position))
        for end in ("", "-wal"):
            if _beside(path, end).exists():
                _beside(path, end).replace(_beside(path, REPLACED + end))
        _beside(path, "-shm").unlink(missing_ok=True)
        scratch.replace(path)
        sync_directory(path.parent)
    except sqlite3.Error as error:
        _remove(scratch)
        raise Unavailable(f"cannot restore to {path}: {meaning(error)}") from None
    except OSError as error:
        _remove(scratch)
        raise Unavailable(f"cannot restore to {path}: {error.strerror}") from error


def _write_database(path: Path, content: Restored) -> None:
    _remove(path)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = table.connect(path)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        with table.transaction(connection):
            rows = [*map(encode, content.records), table.head(content.position.commit)]
            table.create(connection, rows)
            table.stamp(connection)
    finally:
        connection.close()


def _remove(path: Path) -> None:
    for end in ("", "-journal"):
        _beside(path, end).unlink(missing_ok=True)


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _is_there(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0
