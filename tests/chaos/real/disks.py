"""Disks that are full or slow, where this machine allows it."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

_LIBRARY = Path(__file__).with_name("slow_fsync.c")
_BLOCK = b"\0" * 65536


class SmallDisk:
    """A file system of few megabytes at a folder, which can be filled up."""

    def __init__(self, folder: Path) -> None:
        """Use `mount`."""
        self.folder = folder
        self._ballast = folder / "ballast"

    @classmethod
    def mount(cls, folder: Path, size: str) -> SmallDisk | None:
        """A tmpfs at `folder`; None where that is not allowed."""
        folder.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "croupier-chaos", str(folder)]
        if os.geteuid() != 0 or shutil.which("mount") is None:
            return None
        done = subprocess.run(command, capture_output=True, timeout=10)
        return cls(folder) if done.returncode == 0 else None

    def fill(self) -> None:
        """Leave no room at all."""
        with suppress(OSError), self._ballast.open("ab", buffering=0) as ballast:
            while True:
                ballast.write(_BLOCK)

    def free(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)

    def unmount(self) -> None:
        """Let go of it."""
        subprocess.run(["umount", "-l", str(self.folder)], check=True, timeout=10)


class SlowDisk:
    """Has chosen processes wait at each fsync and fdatasync."""

    def __init__(self, library: Path, folder: Path) -> None:
        """Use `build`."""
        self._library, self._folder = library, folder

    @classmethod
    def build(cls, folder: Path) -> SlowDisk | None:
        """Compile what is preloaded; None without a compiler."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            return None
        library = folder / "slow_fsync.so"
        words = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_LIBRARY), "-ldl"]
        done = subprocess.run(words, capture_output=True, timeout=60)
        return cls(library, folder) if done.returncode == 0 else None

    def environment(self, name: str) -> dict[str, str]:
        """What makes a process one that `slow` can slow down by that name."""
        self.slow(name, 0)
        return {"LD_PRELOAD": str(self._library), "SLOW_FSYNC": str(self._path(name))}

    def slow(self, name: str, ms: int) -> None:
        """How long each sync takes from now on, on top of what it takes by itself."""
        self._path(name).write_text(str(ms))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.slow"
