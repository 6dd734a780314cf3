"""Enforces disk limits: ends a task whose sandbox takes more than its limit.

The limit is that of the task, or `disk` of its resources, or the agent's default: a quarter of the
file system and no more than the agent has, if the operator sets none. The task is watched;
`disk_watch` tells how far it gets beyond its limit. What it takes is reported with its end, unless
it ended before it was measured.

Where ext4 or xfs has project quotas on, the kernel refuses what goes beyond the limit (EDQUOT or
ENOSPC). The project id of a sandbox is stored in its directory, where the next agent finds it, and
all that is made in the directory gets the id. The kernel does not refuse blocks to a process with
CAP_SYS_RESOURCE, and the owner of a file may give it another id. So sandboxes are measured as well.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import secrets
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from croupier.agent.core.events import NO_ENDING, Ending, Exceeded, LimitExceeded
from croupier.agent.core.tasks import Key, LocalTask
from croupier.agent.directories import closing, open_directory
from croupier.agent.isolation.disk_size import HiddenFiles
from croupier.agent.isolation.disk_watch import MIB, DiskWatch, Room, Watched, mib, most_files
from croupier.agent.isolation.isolator import Isolator, Launch, limits_of
from croupier.agent.sandbox import Sandboxes
from croupier.agent.unix_user import UidRange
from croupier.model.isolation import Feature, Limits, Usage
from croupier.model.task import Reason, TaskInfo
from croupier.process.logging import get_logger

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
_log = get_logger("croupier.agent")
# A sandbox with so little room below its quota is full.
FULL = 64 * 1024
# The part of the disk that is the limit of a task for which none is named.
DEFAULT_PART = 4
REMEDY = (
    "put the work dir on xfs, or on ext4 with the features project and quota, mounted with prjquota"
)


class ProjectQuotas:
    """The quotas of one file system. All calls raise OSError if the kernel refuses."""

    def __init__(self, root: Path) -> None:
        """Use the file system of `root`; raises OSError if its project quotas cannot be used."""
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
                with closing(os.open(name, flags, dir_fd=directory)) as fd:
                    _set_project(fd, project)

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
    """Return the project id of an open file; raises OSError if its file system has none."""
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


class DiskIsolator(Isolator):
    """Ends tasks for their disk limits. The janitor removes their sandboxes."""

    name = "disk"

    def __init__(
        self,
        watch: DiskWatch,
        defaults: Limits,
        sandboxes: Sandboxes,
        quotas: ProjectQuotas | None = None,
    ) -> None:
        """Use `defaults` for tasks that name no limit, and `quotas` of `sandboxes` if there are."""
        self.watch, self._defaults = watch, defaults
        self.quotas, self._sandboxes = quotas, sandboxes
        enforced = {Feature.DISK, Feature.DISK_QUOTA} if quotas else {Feature.DISK}
        self.features = frozenset(enforced)

    def close(self) -> None:
        """Release what it holds open; quotas stay."""
        self.watch.close()
        if self.quotas is not None:
            self.quotas.close()

    def adopt(self, tasks: Iterable[LocalTask]) -> None:
        """Watch the live tasks of an earlier life of the agent."""
        for task in tasks:
            if task.run:
                self._add(task.run, task.key, task.info)

    def prepare(self, launch: Launch) -> Launch:
        """Limit the sandbox, and watch it from now on."""
        limit = self._add(launch.run, launch.key, launch.info)
        if limit and self.quotas is not None:
            with closing(self._sandboxes.open_to_list(launch.key)) as sandbox:
                self.quotas.limit(sandbox, limit, most_files(limit))
        return launch

    def usage(self, run: str) -> Usage | None:
        """Return the size at the last measurement."""
        watched = self.watch.get(run)
        if watched is None or (watched.is_default and not watched.measured_at):
            return None
        return Usage(disk_bytes=watched.size)

    def end(self, run: str) -> Ending:
        """Return the size at the end, and whether it was above the limit before."""
        watched = self.watch.get(run)
        if watched is not None and not watched.is_default:
            watched = self.watch.measure_last(run)
        elif watched is None or not watched.measured_at:
            return NO_ENDING
        assert watched is not None
        exceeded = watched.exceeded or self._full(watched)
        return Ending(Usage(disk_bytes=watched.size), exceeded)

    def forget(self, run: str) -> None:
        """Stop watching, and remove the quota. The sandbox may be gone already.

        A task that ended because the disk was low keeps only its output.
        """
        watched = self.watch.get(run)
        self.watch.remove(run)
        if watched is not None and self.quotas is not None:
            with suppress(OSError), closing(self._sandboxes.open_to_list(watched.key)) as sandbox:
                self.quotas.release(sandbox)
        if watched is not None and watched.cause:
            with suppress(OSError):
                self._sandboxes.empty(watched.key)

    def _full(self, watched: Watched) -> Exceeded | None:
        """Return the limit if the kernel has refused, or was about to refuse, further blocks."""
        if self.quotas is None:
            return None
        with suppress(OSError), closing(self._sandboxes.open_to_list(watched.key)) as sandbox:
            used = self.quotas.used(sandbox)
            if used + FULL >= watched.limit:
                watched.size = watched.peak = used
                message = f"its sandbox reached its limit of {mib(watched.limit)}"
                return Exceeded(Reason.DISK_LIMIT, message)
        return None

    def _add(self, run: str, key: Key, info: TaskInfo) -> int:
        """Watch a run; return its limit in bytes, 0 without one."""
        request = info.resources["disk"]
        limit = limits_of(info, self._defaults).disk * MIB // 1000
        if limit:
            is_default = not (info.limits.disk or request)
            self.watch.add(run, key, limit, request * MIB // 1000, is_default=is_default)
        return limit


def with_disk(defaults: Limits, root: Path, most: int) -> Limits:
    """Return the limits of tasks that name none, with a part of the file system of `root`.

    It is no more than `most` thousandths of a MiB, which the agent has in all; 0 is no bound.
    """
    # Of a tiny file system, too: 0 would be no limit.
    part = max(_room(root).size // DEFAULT_PART // MIB, 1) * 1000
    return defaults if defaults.disk else replace(defaults, disk=min(part, most or part))


def disk_isolator(
    sandboxes: Sandboxes,
    defaults: Limits,
    tell: Callable[[LimitExceeded], None],
    uids: UidRange | None = None,
    shims: Callable[[], Mapping[int, str]] = dict,
) -> DiskIsolator:
    """Return the isolator of these sandboxes; `tell` receives the limits that are exceeded.

    `uids` each belong to one task, and `shims` returns the pids of shims with their runs.
    """
    root = sandboxes.root
    try:
        quotas: ProjectQuotas | None = ProjectQuotas(root)
    except OSError as error:
        _log.warning("no_disk_quotas", directory=str(root), reason=error.strerror, remedy=REMEDY)
        quotas = None
    hidden = HiddenFiles(uids)
    watch = DiskWatch(sandboxes.open_to_list, lambda: _room(root), tell, hidden, shims)
    return DiskIsolator(watch, defaults, sandboxes, quotas)


def _room(root: Path) -> Room:
    disk = os.statvfs(root)
    return Room(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)
