"""Files that survive a power failure: written, synced and renamed; and errors of files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from croupier.model.errors import CroupierError


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`; after an OSError, such as of a full disk, part of it may be written."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file atomically, with `mode`; raises OSError if it cannot be written."""
    scratch = path.with_name(path.name + ".new")
    fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    scratch.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable; raises OSError if that fails."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def os_errors_as(kind: type[CroupierError], what: str) -> Iterator[None]:
    """Raise `kind` in place of an OSError; its text is `what`, and the reason."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}") from error
