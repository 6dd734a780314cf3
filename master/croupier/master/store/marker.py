"""The marker beside a database: which cluster it holds, and how far it was.

It outlives a database that is moved away or replaced by an older copy. So a new cluster is not
begun in silence where there was one, and an old copy is known before any agent has come.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from croupier.model.errors import InvalidRequest
from croupier.model.store_position import StorePosition


@dataclass(frozen=True, slots=True)
class Marker:
    """What the marker says; the position was durable in the database when it was written."""

    cluster: str
    position: StorePosition


def marker_path(database: Path) -> Path:
    """Where the marker of a database lies."""
    return database.with_name(database.name + ".cluster")


def read_marker(database: Path) -> Marker | None:
    """What the marker says; None if there is none.

    Raises:
        InvalidRequest: if it cannot be understood.
        OSError: if it cannot be read.
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
        told: Any = json.loads(body)
        position = StorePosition(
            int(told["generation"]), int(told["epoch"]), str(told["term"]), int(told["commit"])
        )
        position.check()
        return Marker(str(told["cluster"]), position)
    except (ValueError, KeyError, TypeError, InvalidRequest):
        raise InvalidRequest(
            f"{path} is damaged: it names the cluster of {database.name}. If that database is the"
            " right one, remove the damaged file; it is made anew"
        ) from None


def write_marker(database: Path, marker: Marker) -> None:
    """Replace the marker, durable when this returns.

    Raises:
        OSError: if it cannot be written.
    """
    position = marker.position
    told = {
        "cluster": marker.cluster,
        "generation": position.generation,
        "epoch": position.epoch,
        "term": position.term,
        "commit": position.commit,
    }
    body = json.dumps(told).encode() + b"\n"
    path = marker_path(database)
    scratch = path.with_name(path.name + ".new")
    fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, b"%08x %s" % (crc32(body), body))
        os.fsync(fd)
    finally:
        os.close(fd)
    scratch.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
