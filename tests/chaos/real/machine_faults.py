"""Full disks, slow syncs, clock jumps and broken logs, where this machine permits them."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

_BLOCK = b"\0" * 65536


class SmallDisk:
    """A file system of a few megabytes that can be filled."""

    def __init__(self, folder: Path) -> None:
        """Use `mount` instead."""
        self.folder = folder
        self._ballast = folder / "ballast"

    @classmethod
    def mount(cls, folder: Path, size: str) -> SmallDisk | None:
        """Mount a tmpfs at `folder`; return None where that is not permitted."""
        folder.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "croupier-chaos", str(folder)]
        if os.geteuid() != 0 or shutil.which("mount") is None:
            return None
        done = subprocess.run(command, capture_output=True, timeout=10)
        return cls(folder) if done.returncode == 0 else None

    def fill(self) -> None:
        """Fill the disk."""
        with suppress(OSError), self._ballast.open("ab", buffering=0) as ballast:
            while True:
                ballast.write(_BLOCK)

    def free(self) -> None:
        """Free the space again."""
        self._ballast.unlink(missing_ok=True)

    def unmount(self) -> None:
        """Unmount the file system."""
        subprocess.run(["umount", "-l", str(self.folder)], check=True, timeout=10)


_LIBRARY = Path(__file__).with_name("meddle.c")
_NUMBER = struct.Struct("=q")


class Setting(IntEnum):
    """A number that the library reads, at this place of its file; 0 changes nothing.

    SYNC_MS delays each fsync. CLOCK_S shifts the wall clock. Writes to stderr fail with the errno
    LOG, or hang if it is -1.
    """

    SYNC_MS = 0
    CLOCK_S = 1
    LOG = 2


class PreloadFaults:
    """Slows the syncs of processes, shifts their wall clock and breaks their stderr."""

    def __init__(self, library: Path, folder: Path) -> None:
        """Use `build` instead."""
        self._library, self._folder = library, folder

    @classmethod
    def build(cls, folder: Path) -> PreloadFaults | None:
        """Compile the preloaded library; return None without a compiler."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            return None
        library = folder / "meddle.so"
        words = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_LIBRARY), "-ldl"]
        done = subprocess.run(words, capture_output=True, timeout=60)
        return cls(library, folder) if done.returncode == 0 else None

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment for a process that is addressed by that name."""
        self._path(name).write_bytes(bytes(len(Setting) * _NUMBER.size))
        return {"LD_PRELOAD": str(self._library), "MEDDLE": str(self._path(name))}

    def tell(self, name: str, setting: Setting, number: int) -> None:
        """Change a setting of a process from now on."""
        # Written in place, because the process has it mapped.
        with self._path(name).open("r+b") as told:
            told.seek(setting * _NUMBER.size)
            told.write(_NUMBER.pack(number))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.meddle"
