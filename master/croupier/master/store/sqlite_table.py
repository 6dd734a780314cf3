"""The table of records in a SQLite file: rows of kind, id, body and checksum.

One more row, `head`, has the number of the last commit. It is written with each commit.

SQLite's own texts may quote the database, so only the code of an error is shown, in words.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from croupier.master.store.rows import SCHEMA_VERSION, Row, checksum

LOCKED: Final = "it is locked (is another master running with it?)"

# Meanings by the prefix of the code's name.
_WORDS: Final = {
    "SQLITE_READONLY": "the file, or its file system, is read-only",
    "SQLITE_FULL": "the disk is full",
    "SQLITE_BUSY": LOCKED,
    "SQLITE_LOCKED": LOCKED,
    "SQLITE_IOERR": "the disk fails",
    "SQLITE_CANTOPEN": "it cannot be opened",
    "SQLITE_PERM": "it must not be opened",
    "SQLITE_AUTH": "it must not be opened",
    "SQLITE_NOMEM": "there is no memory left",
    "SQLITE_CORRUPT": "it is corrupt",
    "SQLITE_NOTADB": "it is not a database",
}
_OF_THE_FILE: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_MISMATCH")

# "crou" in ASCII marks Croupier's files.
APPLICATION_ID: Final = 0x63726F75
# Size to which SQLite truncates the write-ahead log after a burst of commits.
MAX_LOG_BYTES: Final = 64 * 1024 * 1024
# The kind of the row with the number of commits; no kind of record has this name.
HEAD: Final = "head"

# As bytes: SQLite's error about text that is not UTF-8 would quote the text.
_COLUMNS = "CAST(kind AS BLOB), CAST(id AS BLOB), CAST(body AS BLOB)"


def code_of(error: sqlite3.Error) -> str:
    """Return the name of the error's code; empty if the error is Python's own, as in decoding."""
    return getattr(error, "sqlite_errorname", None) or ""


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether the file is damaged, rather than unavailable."""
    code = code_of(error)
    return not code or code.startswith(_OF_THE_FILE)


def meaning(error: sqlite3.Error) -> str:
    """Return what the error means to an operator."""
    code = code_of(error)
    for beginning, words in _WORDS.items():
        if code.startswith(beginning):
            return f"{words} ({code})"
    return code or "it holds what no release has written"


class StoredRow(NamedTuple):
    """A row as it was read."""

    kind: bytes
    id: bytes
    body: bytes
    crc: int

    @property
    def is_intact(self) -> bool:
        """Whether the checksum matches."""
        return self.crc == checksum(self.kind, self.id, self.body)

    @property
    def name(self) -> str:
        """Kind and id for an error. Both may be damaged; the body is never quoted."""
        kind, row_id = (part.decode(errors="replace") for part in (self.kind[:40], self.id[:80]))
        return repr(f"{kind} {row_id}")


def connect(path: Path) -> sqlite3.Connection:
    """Connect to the file at `path`; other processes can read it meanwhile."""
    # One thread uses the connection, but another may close it.
    return sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Connect to the existing file at `path` without ever writing to it."""
    name = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(name, timeout=1.0, isolation_level=None, uri=True)


def foreign_commits(connection: sqlite3.Connection) -> int:
    """Return a number that changes when another connection commits to the file."""
    found: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return found


def read_header(connection: sqlite3.Connection) -> tuple[int, int, bool]:
    """Return version and owner of the file, and whether its table has that version.

    The version of a new file is 0, and its table is consistent.
    """
    version, owner, encoding, tables = (
        connection.execute(question).fetchone()[0]
        for question in (
            "PRAGMA user_version", "PRAGMA application_id", "PRAGMA encoding",
            "SELECT count(*) FROM sqlite_master",
        )
    )  # fmt: skip
    if not tables:
        return 0, 0, True
    has_crc = any(row[1] == "crc" for row in connection.execute("PRAGMA table_info(records)"))
    fits = version >= 1 and has_crc and encoding == "UTF-8"
    return version, owner, fits


def prepare(connection: sqlite3.Connection) -> str:
    """Sync each commit to a write-ahead log; return the first corruption, or an empty text."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA journal_size_limit = {MAX_LOG_BYTES}")
    fault: str = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    return "" if fault == "ok" else " ".join(fault.split())[:200]


def stamp(connection: sqlite3.Connection) -> None:
    """Write owner and version of the schema into the file."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit and sync the statements of the block, or roll them back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # Some errors have rolled back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def create(connection: sqlite3.Connection, rows: Sequence[Row] = ()) -> None:
    """Make the table with `rows`, in place of one of an older version."""
    connection.execute("DROP TABLE IF EXISTS records")
    connection.execute(
        "CREATE TABLE records"
        " (kind TEXT NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL,"
        " PRIMARY KEY (kind, id))"
    )
    write(connection, rows or [head(0)])


def head(commits: int) -> Row:
    """Return the row with the number of commits."""
    return Row(HEAD, HEAD, b"%d" % commits)


def stream(connection: sqlite3.Connection) -> Iterator[StoredRow]:
    """Yield all rows in the order of their first commit."""
    query = f"SELECT {_COLUMNS}, crc FROM records ORDER BY rowid"  # noqa: S608 - our own constants
    return (StoredRow(*row) for row in connection.execute(query))


def one(connection: sqlite3.Connection, kind: str, row_id: str) -> StoredRow | None:
    """Return the row of that kind and id, in a file of the present version."""
    query = f"SELECT {_COLUMNS}, crc FROM records WHERE kind = ? AND id = ?"  # noqa: S608
    found = connection.execute(query, (kind, row_id)).fetchone()
    return None if found is None else StoredRow(*found)


def write(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Insert or replace `rows`; delete those without a body."""
    connection.executemany(
        "DELETE FROM records WHERE kind = ? AND id = ?",
        [(row.kind, row.id) for row in rows if row.body is None],
    )
    connection.executemany(
        "INSERT INTO records (kind, id, body, crc) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body, crc = excluded.crc",
        [
            (*row, checksum(row.kind.encode(), row.id.encode(), row.body))
            for row in rows
            if row.body is not None
        ],
    )
