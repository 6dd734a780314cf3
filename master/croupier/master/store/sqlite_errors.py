"""SQLite's errors in words that never quote a record.

SQLite's own texts may quote the database, so only the code of an error is shown.
"""

from __future__ import annotations

import sqlite3
from typing import Final

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
