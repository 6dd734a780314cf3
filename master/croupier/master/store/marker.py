"""Files beside a database: its lock, and its marker.

The marker names the cluster and a position of its history. It stays when the database is moved away
or replaced by an older copy. So a new cluster does not silently replace an old one, and an old copy
is detected before any agent connects.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from croupier.model.errors import InvalidRequest
from croupier.model.store_position import StorePosition
from croupier.process.durable_files import replace_file


class StoreLock:
    """The lock of one database, held from `take` to `release` or the end of the process.

    SQLite's own exclusive lock would keep out readers too, and so backups.
    """

    def __init__(self, database: Path) -> None:
        """Prepare; `take` opens the file."""
        self._path = database.with_name(database.name + ".lock")
        self._fd: int | None = None

    def take(self) -> bool:
        """Take the lock, or return False if another process holds it; raises OSError."""
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


@dataclass(frozen=True, slots=True)
class Marker:
    """The content of a marker; the position was durable in the database at the time of writing."""

    cluster: str
    position: StorePosition


def marker_path(database: Path) -> Path:
    """Return the path of the marker of a database."""
    return database.with_name(database.name + ".cluster")


def read_marker(database: Path) -> Marker | None:
    """Read the marker; None if there is none.

    Raises InvalidRequest if it is damaged; OSError if it cannot be read.
    """
    path = marker_path(database)
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        checksum, _, body = text.partition(b" ")
        if checksum != b"%08x" % crc32(body):
            raise ValueError("its checksum does not match")
        fields: Any = json.loads(body)
        position = StorePosition(
            int(fields["generation"]),
            int(fields["epoch"]),
            str(fields["term"]),
            int(fields["commit"]),
        )
        position.check()
        return Marker(str(fields["cluster"]), position)
    except (ValueError, KeyError, TypeError, InvalidRequest):
        raise InvalidRequest(
            f"{path} is damaged: it names the cluster of {database.name}. If that database is the"
            " right one, remove the damaged file, and the master writes a new one"
        ) from None


def write_marker(database: Path, marker: Marker) -> None:
    """Replace the marker, without a proof, and sync it; raises OSError if that fails."""
    fields = {"cluster": marker.cluster, **asdict(marker.position)}
    del fields["proof"]
    body = json.dumps(fields).encode() + b"\n"
    replace_file(marker_path(database), b"%08x %s" % (crc32(body), body))
