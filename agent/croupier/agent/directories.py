"""Opens files and directories by descriptor where a task may replace any of them.

Rule: a task may run as the agent's own user, and replace any file below the work dir by a link or
a pipe. No open here follows a link, leads upwards or waits for a writer, and only regular files are
opened. The functions raise OSError otherwise, and if the system refuses.

Linux 5.6 has openat2(2), which resolves a whole path under these rules. Without it, each component
is opened separately.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# The same number on every architecture.
_SYS_OPENAT2: Final = 437
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_NO_SYMLINKS: Final = 0x04
_RESOLVE_BENEATH: Final = 0x08
_RESOLVE: Final = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
# Older kernels lack the call, and some container runtimes refuse it.
_LACKS: Final = frozenset({errno.ENOSYS, errno.EPERM})


def open_directory(name: str | Path, at: int | None = None, *, to_list: bool = False) -> int:
    """Open a directory whose last component is not a link; return a descriptor.

    Args:
        name: relative to the directory `at`, if that is given.
        at: the descriptor of the parent.
        to_list: whether the descriptor can list the directory and change its owner.
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


class _OpenHow(ctypes.Structure):
    """`struct open_how` of linux/openat2.h."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_syscall: Final = ctypes.CDLL(None, use_errno=True).syscall
_syscall.argtypes = (
    ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t
)  # fmt: skip
_syscall.restype = ctypes.c_long
_how: Final = _OpenHow(os.O_PATH | _DIRECTORY, 0, _RESOLVE)


def open_directory_beneath(root: int, components: Sequence[str]) -> int:
    """Open a directory below `root`, to open entries below it; return a descriptor."""
    for name in components:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise OSError(errno.EINVAL, "Not a name")
    try:
        return _openat2(root, "/".join(components) or ".")
    except OSError as error:
        if error.errno not in _LACKS:
            raise
    return open_one_by_one(root, components)


def open_one_by_one(root: int, components: Sequence[str]) -> int:
    """Do what `open_directory_beneath` does without openat2."""
    with ExitStack() as opened:
        fd = os.dup(root)
        for name in components:
            opened.callback(os.close, fd)
            fd = open_directory(name, fd)
        return fd


def _openat2(root: int, path: str) -> int:
    size = ctypes.sizeof(_OpenHow)
    fd: int = _syscall(_SYS_OPENAT2, root, os.fsencode(path), ctypes.byref(_how), size)
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd
