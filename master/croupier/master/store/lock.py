"""The lock of the master that uses a database: one master, and any number of readers."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def lock_path(database: Path) -> Path:
    """Return the path of the lock file of a database."""
    return database.with_name(database.name + ".lock")


class StoreLock:
    """The lock of one database, held from `take` to `release` or the end of the process.

    SQLite's own exclusive lock would keep out readers too, and so backups.
    """

    def __init__(self, database: Path) -> None:
        """Open nothing before `take`."""
        self._path = lock_path(database)
        self._fd: int | None = None

    def take(self) -> bool:
        """Take the lock; return False if another process holds it.

        Raises:
            OSError: if the lock file cannot be opened.
        """
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        return True

    def release(self) -> None:
        """Release the lock if it is held. The file stays: removing it would break the lock."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
