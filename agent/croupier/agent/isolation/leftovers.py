"""Removes what tasks with uids of their own have left in shared directories and memory.

Files in /dev/shm, /tmp and /var/tmp and System V objects outlive their task, and their memory stays
charged to the group of all tasks. So a few tasks could use up memory and disk for all later ones.

Rule: only what belongs to a uid for tasks that no run has claimed and no process has is removed.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from croupier.agent.isolation.uid_claims import UidClaims, uids_of_processes
from croupier.agent.isolation.uid_range import UidRange
from croupier.agent.remove_tree import remove_trees

SHARED: Final = (Path("/dev/shm"), Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - of tasks
# Seconds between two sweeps.
SWEEP_S: Final = 5.0
# A sweep takes at most this part of the time.
_REST: Final = 20.0
# Names in one command.
_AT_ONCE: Final = 500
_OBJECTS: Final = ("shm", "msg", "sem")
_IPC_RMID: Final = 0


class Leftovers:
    """The shared files and memory of ended tasks."""

    def __init__(self, uids: UidRange, claims: UidClaims, shared: Sequence[Path] = SHARED) -> None:
        """Remove what belongs to free ones of `uids`, in `shared` directories and of System V."""
        self._uids, self._claims, self._shared = uids, claims, shared

    async def run(self) -> None:
        """Sweep for ever."""
        took_s = 0.0
        while True:
            await asyncio.sleep(max(SWEEP_S, _REST * took_s))
            took_s = await self.sweep()

    async def sweep(self) -> float:
        """Remove what is left now; return the seconds of the search."""
        began = time.monotonic()
        left = await asyncio.to_thread(self._find)
        took_s = time.monotonic() - began
        for shared in self._shared:
            here = [path for path in left if path.parent == shared]
            for at in range(0, len(here), _AT_ONCE):
                await remove_trees(here[at : at + _AT_ONCE])
        return took_s

    def _find(self) -> list[Path]:
        """Return the files to remove, and remove System V objects."""
        files = list(self._files())
        objects = list(self._objects())
        if not (files or objects):
            return []
        # After the search: what a later task makes is not in it.
        in_use = uids_of_processes()
        is_free = self._is_free(in_use)
        for kind, number, uid in objects:
            if is_free(uid):
                _remove_object(kind, number)
        return [path for path, uid in files if is_free(uid)]

    def _is_free(self, in_use: set[int]) -> Callable[[int], bool]:
        return lambda uid: uid not in in_use and not self._claims.has(uid)

    def _files(self) -> Iterator[tuple[Path, int]]:
        for shared in self._shared:
            with suppress(OSError), os.scandir(shared) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        uid = entry.stat(follow_symlinks=False).st_uid
                        if uid in self._uids:
                            yield shared / entry.name, uid

    def _objects(self) -> Iterator[tuple[str, int, int]]:
        """Yield the kind, the number and the creator of System V objects of these uids."""
        for kind in _OBJECTS:
            with suppress(OSError):
                header, *lines = Path("/proc/sysvipc", kind).read_text().splitlines()
                creator = header.split().index("cuid")
                for line in lines:
                    words = line.split()
                    if (uid := int(words[creator])) in self._uids:
                        yield kind, int(words[1]), uid


def _remove_object(kind: str, number: int) -> None:
    control = getattr(ctypes.CDLL(None), f"{kind}ctl")
    arguments = (0, _IPC_RMID) if kind == "sem" else (_IPC_RMID,)
    # It may be gone already.
    control(number, *arguments, None)
