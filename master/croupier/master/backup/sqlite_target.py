"""Restoring a copy to a SQLite file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from croupier.master.backup.restored import Restored, Witness
from croupier.master.backup.source import sqlite_snapshot
from croupier.master.store import sqlite_table as table
from croupier.master.store.lock import StoreLock
from croupier.master.store.marker import Marker, marker_path, read_marker, write_marker
from croupier.master.store.rows import encode
from croupier.master.store.sqlite_table import meaning
from croupier.model.errors import Conflict, InvalidRequest, Unavailable
from croupier.model.store_position import StorePosition
from croupier.process.durable_files import sync_directory

# What is appended to the name of the database that a copy replaces.
REPLACED = ".replaced"
_SCRATCH = ".restoring"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep masters away from the database at `path`.

    Raises:
        Conflict: if a master uses it.
        Unavailable: if it cannot be locked.
    """
    if not path.parent.is_dir():
        raise Unavailable(f"cannot restore to {path}: there is no directory {path.parent}")
    lock = StoreLock(path)
    try:
        if not lock.take():
            raise Conflict(f"a master is running with the store {path}: stop it first")
    except OSError as error:
        raise Unavailable(f"cannot restore to {path}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


def sqlite_witnesses(path: Path) -> list[Witness]:
    """Return the positions in the database at `path`, unless it is damaged, and in its marker.

    Raises:
        InvalidRequest: if the marker is damaged.
        Unavailable: if the database cannot be read, or a master uses it.
    """
    found = []
    if (marker := read_marker(path)) is not None:
        found.append(Witness(str(marker_path(path)), marker.cluster, marker.position))
    if not _is_there(path):
        return found
    with suppress(InvalidRequest), sqlite_snapshot(path) as snapshot:
        if (master := snapshot.master) is not None:
            term = master.terms[-1].name if master.terms else ""
            end = StorePosition(master.generation, master.epoch, term, snapshot.commits)
            found.append(Witness(f"the store {path}", master.cluster, end))
    return found


def check_free(path: Path, *, replaces: bool) -> None:
    """Refuse to replace a database unless the operator wants that.

    Raises:
        Conflict: if there is one.
    """
    log = _beside(path, "-wal")
    if not replaces and (_is_there(path) or _is_there(log)):
        raise Conflict(
            f"there is a store at {path}: give --replace, which keeps it as"
            f" {path.name}{REPLACED}, or restore to another path"
        )


def write_sqlite(path: Path, content: Restored, cluster: str) -> None:
    """Write the restored store at `path`; a database there is kept beside it.

    The caller holds the lock. The new database replaces the old one as a whole: after a crash, the
    path has one of both, or none and a master refuses to start.

    Raises:
        Unavailable: if it cannot be written.
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
