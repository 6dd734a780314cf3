"""Disk quotas of directories: project quotas of ext4 and xfs, if the file system has them on.

Rule: the project id of a sandbox is stored in its directory, where the next agent finds it. All
that is made in the directory gets the id, and the kernel refuses blocks beyond the limit of the id
(EDQUOT or ENOSPC). It does not refuse them to a process with CAP_SYS_RESOURCE, and the owner of a
file may give it another id. So sandboxes are measured as well.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import secrets
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from croupier.agent.directories import open_directory

# Ids that nothing else should use.
FIRST_ID: Final = 0x4000_0000
IDS: Final = 0x1000_0000
_TRIES: Final = 64
BLOCK: Final = 1024

# struct fsxattr: xflags, extsize, nextents, projid, cowextsize, padding.
_ATTRIBUTES: Final = struct.Struct("=IIIII8x")
_GET_ATTRIBUTES: Final = 0x801C581F
_SET_ATTRIBUTES: Final = 0x401C5820
_INHERIT: Final = 0x200

# struct if_dqblk: hard and soft limit in KiB, bytes used, three numbers of inodes, two times, mask.
_QUOTA: Final = struct.Struct("=QQQQQQQQI4x")
_GET_QUOTA: Final = 0x800007 << 8 | 2
_SET_QUOTA: Final = 0x800008 << 8 | 2
_BLOCK_AND_FILE_LIMITS: Final = 1 | 4
# quotactl_fd(2) of Linux 5.14; the same number on every architecture.
_SYS_QUOTACTL_FD: Final = 443

_syscall: Final = ctypes.CDLL(None, use_errno=True).syscall
_syscall.argtypes = (ctypes.c_long, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint, ctypes.c_char_p)
_syscall.restype = ctypes.c_long


class ProjectQuotas:
    """The quotas of one file system. All calls raise OSError if the kernel refuses."""

    def __init__(self, root: Path) -> None:
        """Use the file system of `root`.

        Raises:
            OSError: if it has no project quotas, or this process may not use them.
        """
        self._fd = open_directory(root, to_list=True)
        try:
            _, limit = self._read(FIRST_ID)
            # Fails if the agent may not change quotas.
            self._write(FIRST_ID, limit)
            project_of(self._fd)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Release the descriptor."""
        os.close(self._fd)

    def limit(self, directory: int, size: int, files: int = 0) -> None:
        """Hold an open directory, and all that is in it, to `size` bytes and `files`, if given.

        Files in subdirectories that exist already are not counted.
        """
        project = project_of(directory)
        if not FIRST_ID <= project < FIRST_ID + IDS:
            project = self._unused()
        self._write(project, max(size // BLOCK, 1), files)
        _set_project(directory, project, inherits=True)
        for name in os.listdir(directory):
            with suppress(FileNotFoundError):
                # Another task of the same account may have put a pipe there.
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                fd = os.open(name, flags, dir_fd=directory)
                try:
                    _set_project(fd, project)
                finally:
                    os.close(fd)

    def used(self, directory: int) -> int:
        """Return the bytes that a limited directory uses; 0 if it was never limited."""
        project = project_of(directory)
        return self._read(project)[0] if project >= FIRST_ID else 0

    def release(self, directory: int) -> None:
        """Remove the limit of a directory."""
        project = project_of(directory)
        if project >= FIRST_ID:
            self._write(project, 0)

    def _unused(self) -> int:
        for _ in range(_TRIES):
            project = FIRST_ID + 1 + secrets.randbelow(IDS - 1)
            if self._read(project) == (0, 0):
                return project
        raise OSError("no project id is free")

    def _read(self, project: int) -> tuple[int, int]:
        """Return the bytes used and the limit in blocks."""
        data = ctypes.create_string_buffer(_QUOTA.size)
        self._call(_GET_QUOTA, project, data)
        hard, _, used, *_ = _QUOTA.unpack(data.raw)
        return used, hard

    def _write(self, project: int, blocks: int, files: int = 0) -> None:
        data = _QUOTA.pack(blocks, blocks, 0, files, files, 0, 0, 0, _BLOCK_AND_FILE_LIMITS)
        self._call(_SET_QUOTA, project, ctypes.create_string_buffer(data, len(data)))

    def _call(self, command: int, project: int, data: ctypes.Array[ctypes.c_char]) -> None:
        if _syscall(_SYS_QUOTACTL_FD, self._fd, command, project, data) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def project_of(fd: int) -> int:
    """Return the project id of an open file or directory.

    Raises:
        OSError: if its file system has none.
    """
    data = bytearray(_ATTRIBUTES.size)
    fcntl.ioctl(fd, _GET_ATTRIBUTES, data)
    project: int = _ATTRIBUTES.unpack(data)[3]
    return project


def _set_project(fd: int, project: int, *, inherits: bool = False) -> None:
    data = bytearray(_ATTRIBUTES.size)
    fcntl.ioctl(fd, _GET_ATTRIBUTES, data)
    flags, size, extents, _, copy_size = _ATTRIBUTES.unpack(data)
    flags |= _INHERIT if inherits else 0
    fcntl.ioctl(fd, _SET_ATTRIBUTES, _ATTRIBUTES.pack(flags, size, extents, project, copy_size))
