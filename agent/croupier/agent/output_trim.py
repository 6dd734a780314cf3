"""Bounds the output files of tasks: frees the oldest pieces while the task keeps writing.

Rule: no byte is copied or moved. The kernel frees the blocks at the beginning of the file
(`fallocate` with PUNCH_HOLE), so a byte keeps its offset for ever, a follower neither loses nor
repeats one that it can still read, and the task, its shim and an agent that restarts need to know
nothing. A file is looked at once a second, and sooner if the disk fills. So short tasks cost two
`stat` calls, and a file exceeds its bound by what the task writes meanwhile.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from croupier.agent.core.tasks import Key, LocalTask
from croupier.agent.sandbox import STREAMS, Sandboxes, Stream
from croupier.model.errors import CroupierError
from croupier.model.output_bound import BLOCK, OutputBound
from croupier.model.task import TaskInfo
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

TICK_S: Final = 0.25
# Seconds between two looks at all files, and further seconds for each task.
LOOK_S: Final = 1.0
LOOK_S_PER_TASK: Final = 0.001
# All files are looked at sooner if the disk has lost this many bytes since the last look.
LOST_BYTES: Final = 32 << 20
_PUNCH: Final = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE, which needs FALLOC_FL_KEEP_SIZE
_UNABLE: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.ENODEV)

_fallocate: Final = ctypes.CDLL(None, use_errno=True).fallocate64
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_fallocate.restype = ctypes.c_int


@dataclass(slots=True)
class _Bounded:
    """A task whose output is bounded; `cut` has the bytes freed at the beginning of a stream."""

    path: str
    bound: OutputBound
    cut: dict[Stream, int] = field(default_factory=dict)


class OutputTrim:
    """Trims the output of live tasks, and once more after their end."""

    def __init__(
        self,
        sandboxes: Sandboxes,
        default: OutputBound,
        is_live: Callable[[Key], bool],
        now: Callable[[], float] = monotonic,
    ) -> None:
        """Use `default` for tasks that name no bound; `is_live`: whether a task may still write."""
        self._sandboxes, self._default, self._is_live, self._now = sandboxes, default, is_live, now
        self._tasks: dict[Key, _Bounded] = {}
        self._added = asyncio.Event()
        self._looked_at, self._free = 0.0, 0
        self._is_unable = False

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, key: Key, info: TaskInfo) -> None:
        """Bound the output of a task that is started now."""
        bound = info.output.or_else(self._default)
        if bound.size:
            self._tasks[key] = _Bounded(self._sandboxes.path_of(key), bound)
            self._added.set()

    def adopt(self, tasks: Iterable[LocalTask]) -> None:
        """Bound the output of the live tasks of an earlier life of the agent."""
        for task in tasks:
            if task.run:
                self.add(task.key, task.info)

    async def run(self) -> None:
        """Trim until cancelled."""
        while True:
            await self._added.wait()
            await asyncio.sleep(TICK_S)
            await self.check()
            if not self._tasks:
                self._added.clear()

    async def check(self) -> None:
        """Check the output of tasks that have ended, and of all others when that is due."""
        ended = [key for key in self._tasks if not self._is_live(key)]
        free, now = self._free_bytes(), self._now()
        wait_s = LOOK_S + LOOK_S_PER_TASK * len(self._tasks)
        is_due = now - self._looked_at >= wait_s or self._free - free >= LOST_BYTES
        keys = list(self._tasks) if is_due else ended
        keys = [key for key in keys if not self._sandboxes.silent.has(key)]
        if is_due:
            self._looked_at, self._free = now, free
        if keys:
            # The thread goes on if this is cancelled; it ends soon.
            await asyncio.to_thread(self._trim_all, [(key, self._tasks[key]) for key in keys])
        for key in ended:
            self._tasks.pop(key, None)

    def _free_bytes(self) -> int:
        try:
            disk = os.statvfs(self._sandboxes.root)
        except OSError:
            return 0
        return disk.f_bavail * disk.f_frsize

    def _trim_all(self, tasks: Iterable[tuple[Key, _Bounded]]) -> None:
        for key, task in tasks:
            for stream in STREAMS:
                with suppress(OSError, CroupierError):
                    # Decides only whether to open the file, so links in the path do no harm.
                    size = os.lstat(f"{task.path}/{stream}").st_size
                    cut = task.bound.cut(size)
                    if cut > task.cut.get(stream, 0):
                        task.cut[stream] = cut
                        self._trim(key, stream, task.bound)

    def _trim(self, key: Key, stream: Stream, bound: OutputBound) -> None:
        fd = self._sandboxes.open_output(key, stream, os.O_RDWR)
        try:
            cut = bound.cut(os.fstat(fd).st_size)
            if cut:
                punch(fd, cut)
        except OSError as error:
            if error.errno not in _UNABLE:
                raise
            if not self._is_unable:
                self._is_unable = True
                _log.warning("output_not_bounded", path=str(self._sandboxes.root), error=str(error))
        finally:
            os.close(fd)


def punch(fd: int, cut: int) -> None:
    """Free the first `cut` bytes of a file, which read as zeros then; its size stays.

    Raises OSError if the file system cannot do that.
    """
    if _fallocate(fd, _PUNCH, 0, cut) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def first_kept(fd: int) -> int:
    """Return the offset of the first byte of an output file that was not freed.

    Moves the offset of the descriptor.
    """
    try:
        begin = os.lseek(fd, 0, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            return 0
        # Nothing was written, or nothing but zeros: some of the output is always kept.
        return 0
    # Only whole blocks are freed; a task may write zeros that a file system does not store.
    return begin - begin % BLOCK
