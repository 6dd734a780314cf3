"""Stores that are copied: each yields its rows as of one commit while a master uses it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from croupier.master.core.records import MasterRecord
from croupier.master.store import sqlite_table as table
from croupier.master.store.rows import SCHEMA_VERSION, Row, decode
from croupier.master.store.sqlite_table import StoredRow, is_damage, meaning
from croupier.master.store.wal import damage
from croupier.model.errors import InvalidRequest, Unavailable


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A store at one commit.

    Attributes:
        master: the record of the cluster; None if no master has led with the store.
        commits: the number of the last commit.
        version: of the format of the records.
        rows: all records; each is checked when it is read.
    """

    master: MasterRecord | None
    commits: int
    version: int
    rows: Iterator[Row]


@contextmanager
def sqlite_snapshot(path: Path) -> Iterator[Snapshot]:
    """Read the database at `path` as of one commit; a master may go on writing to it.

    Nothing is written. One transaction reads all rows, and the write-ahead log grows meanwhile.

    Raises:
        InvalidRequest: if it is damaged, another program's, or of another release.
        Unavailable: if it cannot be read.
    """
    if not path.exists():
        raise InvalidRequest(f"there is no store {path}")
    try:
        log = path.with_name(path.name + "-wal")
        what = damage(log)
        # A running master may write the log while this process reads it.
        if what and damage(log) == what:
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
    return Snapshot(record, int(head), version, rows)


def _only(connection: sqlite3.Connection, path: Path, kind: str, row_id: str) -> bytes | None:
    """Return the body of one record, checked; None if there is none."""
    found = table.one(connection, kind, row_id)
    return None if found is None else _checked(found, path).body


def _checked(row: StoredRow, path: Path) -> Row:
    """Return an intact row.

    Raises:
        InvalidRequest: if the row is damaged.
    """
    if not row.is_intact:
        raise InvalidRequest(
            f"the store {path} is damaged (the checksum of {row.name} does not match)"
        )
    return Row(row.kind.decode(), row.id.decode(), row.body)
