"""Safe opening of directories below a directory with hostile contents.

Rule: no component of the path is a symbolic link, a magic link of /proc, or leads upwards, even if
a task replaces one meanwhile. Linux 5.6 has openat2(2), which resolves the whole path under these
rules. Without it, each component is opened separately, as in `directories`.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from croupier.agent.directories import open_directory

# The same number on every architecture.
_SYS_OPENAT2: Final = 437
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_NO_SYMLINKS: Final = 0x04
_RESOLVE_BENEATH: Final = 0x08
_RESOLVE: Final = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Older kernels lack the call, and some container runtimes refuse it.
_LACKS: Final = frozenset({errno.ENOSYS, errno.EPERM})


class _OpenHow(ctypes.Structure):
    """`struct open_how` of linux/openat2.h."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_syscall: Final = ctypes.CDLL(None, use_errno=True).syscall
_syscall.argtypes = (
    ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t
)  # fmt: skip
_syscall.restype = ctypes.c_long
_how: Final = _OpenHow(_DIRECTORY, 0, _RESOLVE)


@contextmanager
def directory_beneath(root: int, components: Sequence[str]) -> Iterator[int]:
    """Open a directory below `root` for the context, to open entries below it.

    Args:
        root: descriptor of a directory.
        components: names on the way, without slashes.

    Raises:
        OSError: if a component is missing, a link, or no directory.
    """
    fd = open_directory_beneath(root, components)
    try:
        yield fd
    finally:
        os.close(fd)


def open_directory_beneath(root: int, components: Sequence[str]) -> int:
    """Open a directory below `root`; return a descriptor. Raises as `directory_beneath`."""
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
