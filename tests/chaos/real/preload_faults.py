"""Slow disks and a clock that jumps, for chosen processes, where there is a C compiler."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

_LIBRARY = Path(__file__).with_name("meddle.c")
_NUMBER = struct.Struct("=q")


class Meddler:
    """Makes the syncs of processes slow, and has their wall clock jump."""

    def __init__(self, library: Path, folder: Path) -> None:
        """Use `build`."""
        self._library, self._folder = library, folder

    @classmethod
    def build(cls, folder: Path) -> Meddler | None:
        """Compile what is preloaded; None without a compiler."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            return None
        library = folder / "meddle.so"
        words = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_LIBRARY), "-ldl"]
        done = subprocess.run(words, capture_output=True, timeout=60)
        return cls(library, folder) if done.returncode == 0 else None

    def environment(self, name: str) -> dict[str, str]:
        """What makes a process one that can be meddled with by that name."""
        self._path(name).write_bytes(bytes(2 * _NUMBER.size))
        return {"LD_PRELOAD": str(self._library), "MEDDLE": str(self._path(name))}

    def slow(self, name: str, ms: int) -> None:
        """How long each fsync takes from now on, on top of what it takes by itself."""
        self._tell(name, 0, ms)

    def shift(self, name: str, seconds: int) -> None:
        """How far the wall clock is off from now on."""
        self._tell(name, _NUMBER.size, seconds)

    def _tell(self, name: str, offset: int, number: int) -> None:
        # In place: the process has it mapped.
        with self._path(name).open("r+b") as told:
            told.seek(offset)
            told.write(_NUMBER.pack(number))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.meddle"
