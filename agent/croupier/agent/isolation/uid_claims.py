"""Claims on uids: no two live tasks of this machine have the same, whichever agent runs them.

A claim is a symbolic link in /run/croupier/uids, named by the uid and pointing to the run file. It
is made in one step and survives the agent. The next agent on the work dir keeps the claims of live
runs and releases the others. A reboot removes all. Agents that see another /run, such as those in
containers, need disjoint ranges.

Files in /dev/shm, /tmp and /var/tmp and System V objects outlive their task, and their memory stays
charged to the group of all tasks. So a few tasks could use up memory and disk for all later ones.

Rules:
- Uids are claimed in ascending order, from a position that all agents share. So a uid is used again
  only after all others of the range.
- Only what belongs to a uid for tasks that no run has claimed and no process has is removed.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from croupier.agent.janitor import remove_trees
from croupier.agent.unix_user import UidRange
from croupier.model.errors import Unavailable

BASE: Final = Path("/run/croupier/uids")
# A claim on a run without a file is kept for this time: the run may just begin.
_NEW_S: Final = 60.0
SHARED: Final = (Path("/dev/shm"), Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - of tasks
# Seconds between two sweeps.
SWEEP_S: Final = 5.0
# A sweep takes at most this part of the time.
_REST: Final = 20.0
# Names in one command.
_AT_ONCE: Final = 500
_OBJECTS: Final = ("shm", "msg", "sem")
_IPC_RMID: Final = 0


class UidClaims:
    """The claims of one agent."""

    def __init__(self, uids: UidRange, runs: Path, base: Path | None = None) -> None:
        """Claim for runs with files in `runs`, in BASE by default; raises Unavailable."""
        self._uids, self._runs, self._base = uids, runs, base or BASE
        self._position = -1
        self._prepare()

    def take(self, run: str) -> int:
        """Claim a uid for a run; raises Unavailable if none is free, or claims fail."""
        try:
            uid = self._first_free(run)
            if uid is None and self._release_stale():
                uid = self._first_free(run)
        except OSError as error:
            # The directory may have been removed; the next launch finds a new one.
            self._prepare()
            raise Unavailable(f"cannot claim a uid in {self._base}: {error.strerror}") from error
        if uid is None:
            raise Unavailable(f"all {len(self._uids)} uids of --task-uids are in use")
        return uid

    def renew(self, uid: int, run: str) -> None:
        """Claim a known uid of a live run anew, if the claim was lost."""
        with suppress(OSError):
            self._claim(uid, run)

    def release(self, uid: int) -> None:
        """Release a uid that no process has any more."""
        with suppress(OSError):
            os.unlink(f"{self._base}/{uid}")  # noqa: PTH108 - for each task

    def has(self, uid: int) -> bool:
        """Return whether a run of any agent has claimed a uid."""
        return os.path.lexists(self._base / str(uid))

    def own(self) -> dict[str, int]:
        """Return the claims for runs of this work dir. Reads all claims of the machine."""
        return {target.name: uid for uid, target in self._all() if target.parent == self._runs}

    def _claim(self, uid: int, run: str) -> None:
        os.symlink(f"{self._runs}/{run}", f"{self._base}/{uid}")  # noqa: PTH211 - for each task

    def _first_free(self, run: str) -> int | None:
        text = os.pread(self._position, 12, 0).strip()
        # Random after a reboot: files of tasks may be left in /var/tmp.
        position = int(text) if text.isdigit() else random.randrange(len(self._uids))
        for step in range(len(self._uids)):
            uid = self._uids.first + (position + step) % len(self._uids)
            try:
                self._claim(uid, run)
            except FileExistsError:
                continue
            # A race of two agents makes both continue at the same place, which is harmless.
            os.pwrite(self._position, f"{uid + 1 - self._uids.first:<12}".encode(), 0)
            return uid
        return None

    def _release_stale(self) -> int:
        """Release uids of work dirs that were removed; return how many."""
        in_use = uids_of_processes()
        before = time.time() - _NEW_S
        stale = [
            uid
            for uid, target in self._all()
            if uid not in in_use
            and not os.path.lexists(target)
            and (self._base / str(uid)).lstat().st_mtime < before
        ]
        for uid in stale:
            self.release(uid)
        return len(stale)

    def _all(self) -> Iterator[tuple[int, Path]]:
        try:
            names = os.listdir(self._base)  # noqa: PTH208 - names are enough
        except OSError:
            return
        for name in names:
            if name.isdecimal():
                with suppress(OSError):
                    yield int(name), (self._base / name).readlink()

    def _prepare(self) -> None:
        """Make the directory, for root alone, and open the position."""
        try:
            self._base.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self._base.lstat()
            is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            if not is_own or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise Unavailable(f"{self._base} is not a directory of root alone")
            name = self._base / f"next-{self._uids}"
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            opened = os.open(name, flags, 0o600)
        except OSError as error:
            raise Unavailable(f"cannot use {self._base}: {error.strerror}") from error
        self.close()
        self._position = opened

    def close(self) -> None:
        """Close the descriptor; the claims of uids stay."""
        if self._position >= 0:
            os.close(self._position)
            self._position = -1


def uids_of_processes() -> set[int]:
    """Return the real, effective, saved and file system uids of all processes."""
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            for line in path.read_text(errors="replace").splitlines():
                if line.startswith("Uid:"):
                    found.update(map(int, line.split()[1:]))
    return found


class Leftovers:
    """The shared files and memory of ended tasks."""

    def __init__(self, uids: UidRange, claims: UidClaims, shared: Sequence[Path] = SHARED) -> None:
        """Remove what belongs to free ones of `uids`, in `shared` directories and of System V."""
        self._uids, self._claims, self._shared = uids, claims, shared

    async def run(self) -> None:
        """Sweep until cancelled."""
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

        def is_free(uid: int) -> bool:
            return uid not in in_use and not self._claims.has(uid)

        for kind, number, uid in objects:
            if is_free(uid):
                arguments = (0, _IPC_RMID) if kind == "sem" else (_IPC_RMID,)
                # It may be gone already.
                getattr(ctypes.CDLL(None), f"{kind}ctl")(number, *arguments, None)
        return [path for path, uid in files if is_free(uid)]

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
