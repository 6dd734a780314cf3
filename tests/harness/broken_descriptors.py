"""Descriptors that take nothing: full, hung up, without a reader, or with one that never reads."""

from __future__ import annotations

import fcntl
import os
import pty
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def _full_device() -> Iterator[int]:
    fd = os.open("/dev/full", os.O_WRONLY)
    yield fd
    os.close(fd)


@contextmanager
def _pipe(*, is_read: bool, blocks: bool = True) -> Iterator[int]:
    """A pipe with a reader that reads nothing, or without a reader."""
    reader, writer = os.pipe()
    if not blocks:
        fcntl.fcntl(writer, fcntl.F_SETFL, os.O_NONBLOCK)
    if not is_read:
        os.close(reader)
    yield writer
    os.close(writer)
    if is_read:
        os.close(reader)


@contextmanager
def _hung_up_terminal() -> Iterator[int]:
    """Writes fail with EIO."""
    master, slave = pty.openpty()
    os.close(master)
    yield slave
    os.close(slave)


BROKEN: dict[str, Callable[[], AbstractContextManager[int]]] = {
    "ENOSPC": _full_device,
    "EPIPE": lambda: _pipe(is_read=False),
    "EIO": _hung_up_terminal,
    "EAGAIN": lambda: _pipe(is_read=True, blocks=False),
    "no reader reads": lambda: _pipe(is_read=True),
}
