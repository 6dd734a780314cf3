"""Disks that are full, where this machine allows it."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

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
