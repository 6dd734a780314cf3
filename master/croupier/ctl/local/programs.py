"""The programs that agents compile at their first start, kept for the next `croupier local`.

An agent compiles its shim once for each work dir, and `croupier local` usually has a new one. So it
keeps what agents have compiled in the user's cache, and puts it into their new work dirs. An agent
uses such a program only if its name is that of the present source.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_PATTERN = "shim-*"


class KeptPrograms:
    """The programs in one directory, which only its user can write."""

    def __init__(self, directory: Path | None) -> None:
        """Use `directory`; None keeps nothing."""
        self._directory = directory

    @classmethod
    def of_user(cls, environment: Mapping[str, str] = os.environ) -> KeptPrograms:
        """Return those in the user's cache: $XDG_CACHE_HOME/croupier, or ~/.cache/croupier."""
        cache = environment.get("XDG_CACHE_HOME", "")
        home = environment.get("HOME", "")
        if cache.startswith("/"):
            return cls(Path(cache, "croupier"))
        return cls(Path(home, ".cache", "croupier") if home.startswith("/") else None)

    def place(self, work_dir: Path) -> None:
        """Copy the programs into the work dir of an agent; nothing happens if that fails."""
        if self._directory is None or not _is_private(self._directory):
            return
        with suppress(OSError):
            for kept in self._directory.glob(_PATTERN):
                work_dir.mkdir(parents=True, exist_ok=True)
                placed = work_dir / kept.name
                if not placed.exists():
                    shutil.copy(kept, placed)

    def keep(self, work_dir: Path) -> None:
        """Keep the programs of an agent, and no others; nothing happens if that fails."""
        if self._directory is None:
            return
        with suppress(OSError):
            made = {each.name: each for each in work_dir.glob(_PATTERN) if each.is_file()}
            if not made:
                return
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(self._directory):
                return
            kept = {each.name: each for each in self._directory.glob(_PATTERN)}
            for name in made.keys() - kept.keys():
                scratch = self._directory / f".{name}.{os.getpid()}"
                shutil.copy(made[name], scratch)
                scratch.replace(self._directory / name)
            for name in kept.keys() - made.keys():
                kept[name].unlink(missing_ok=True)


def _is_private(directory: Path) -> bool:
    """Return whether the directory is this user's, and no other user can write to it."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not writable
