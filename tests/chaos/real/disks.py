"""Full disks, where this machine permits mounts."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
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
