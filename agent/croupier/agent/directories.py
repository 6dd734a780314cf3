"""Opens files and directories by descriptor where a task may replace any of them.

Rule: a task may run as the agent's own user, and replace any file below the work dir by a link or
a pipe. No open here follows a link, leads upwards or waits for a writer, and only regular files are
opened. So each component of a path is opened separately. The functions raise OSError otherwise, and
if the system refuses.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_directory(name: str | Path, at: int | None = None, *, to_list: bool = False) -> int:
    """Open a directory whose last component is not a link, below `at`; return a descriptor.

    With `to_list`, that can list the directory and change its owner.
    """
    access = os.O_RDONLY if to_list else os.O_PATH
    return os.open(name, access | _DIRECTORY, dir_fd=at)


@contextmanager
def closing(fd: int) -> Iterator[int]:
    """Close a descriptor at the end of the context."""
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def directory(name: str | Path, at: int | None = None, *, to_list: bool = False) -> Iterator[int]:
    """Open a directory, as `open_directory` does, for the context."""
    with closing(open_directory(name, at, to_list=to_list)) as fd:
        yield fd


def open_regular(name: str | Path, flags: int, at: int) -> int:
    """Open a regular file; return a descriptor."""
    fd = os.open(name, flags | _FILE, 0o600, dir_fd=at)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "Not a regular file")
    return fd


def open_beneath(path: Path, flags: int) -> int:
    """Open a regular file in a directory that is not a link; return a descriptor."""
    parent, name = os.path.split(path)
    with closing(os.open(parent, os.O_PATH | _DIRECTORY)) as at:
        return open_regular(name, flags, at)


def unlink_beneath(path: Path) -> None:
    """Remove a file, if it exists, from a directory that is not a link."""
    parent, name = os.path.split(path)
    with suppress(FileNotFoundError), closing(os.open(parent, os.O_PATH | _DIRECTORY)) as at:
        os.unlink(name, dir_fd=at)


def open_directory_beneath(root: int | Path, components: Sequence[str]) -> int:
    """Open a directory below `root`, to open entries below it; return a descriptor."""
    for name in components:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise OSError(errno.EINVAL, "Not a name")
    fd = os.dup(root) if isinstance(root, int) else open_directory(root)
    for name in components:
        with closing(fd):
            fd = open_directory(name, fd)
    return fd
