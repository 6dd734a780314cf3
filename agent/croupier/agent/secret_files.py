"""Secrets of tasks as files, in memory: /dev/shm/croupier-agent-UID-WORKDIR/RUN/NAME.

Rule: secrets are on no disk. The directories are on a tmpfs, so a reboot removes them too. The
directory of a run is its task's alone, and is removed with its run file: when the task has ended,
or when the next agent on the work dir starts.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from croupier.agent.directories import closing, directory
from croupier.agent.unix_user import UnixUser
from croupier.model.secrets import SecretValues
from croupier.process.durable_files import write_all

BASE: Final = Path("/dev/shm")  # noqa: S108 - its parts are checked
_IN_MEMORY: Final = ("tmpfs", "ramfs")
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class SecretsUndeliverable(Exception):
    """The agent cannot give a task its secrets as files."""


class SecretFiles:
    """The directories of the runs of one work dir."""

    def __init__(self, work_dir: Path, base: Path = BASE) -> None:
        """Prepare; the first `write` makes the directory."""
        name = hashlib.sha256(os.fsencode(work_dir)).hexdigest()[:12]
        self.root = base / f"croupier-agent-{os.geteuid()}-{name}"
        # Most runs have none, and looking costs each task.
        self._may_exist = True

    def write(self, run: str, secrets: SecretValues, owner: UnixUser | None = None) -> Path:
        """Write each secret to a file that only the owner can read; return the directory.

        Raises SecretsUndeliverable if that fails; nothing is left then.
        """
        path = self.root / run
        self._may_exist = True
        try:
            self._prepare()
            with directory(self.root) as root:
                os.mkdir(run, 0o700, dir_fd=root)
                with directory(run, root, to_list=True) as fd:
                    for name, value in secrets.reveal().items():
                        _write(name, value, owner, fd)
                    if owner is not None:
                        os.fchown(fd, owner.uid, owner.gid)
                    os.fchmod(fd, 0o500)
        except (OSError, UnicodeError) as error:
            with suppress(OSError):
                self.remove(run)
            why = error.strerror if isinstance(error, OSError) else "a value is not text"
            raise SecretsUndeliverable(f"cannot write secrets to {self.root}: {why}") from None
        return path

    def remove(self, run: str) -> None:
        """Remove the directory of a run, if there is one.

        Directories that the task has made in it stay until the next agent starts. Raises OSError if
        something is left.
        """
        if not self._may_exist:
            return
        self._may_exist = self.root.exists()
        with suppress(FileNotFoundError), directory(self.root) as root:
            with directory(run, root, to_list=True) as fd:
                os.fchmod(fd, 0o700)
                for name in _names(fd):
                    with suppress(IsADirectoryError, PermissionError):
                        os.unlink(name, dir_fd=fd)
            os.rmdir(run, dir_fd=root)
            with suppress(OSError):
                # Fails while other runs have secrets.
                self.root.rmdir()

    def left(self, known: Collection[str]) -> list[Path]:
        """Return the directories of runs that are not `known`."""
        try:
            with directory(self.root, to_list=True) as fd:
                return [self.root / name for name in sorted(_names(fd).difference(known))]
        except OSError:
            return []

    def _prepare(self) -> None:
        """Make the directory of the agent, which others can pass through but not list."""
        if not is_in_memory(self.root.parent):
            raise SecretsUndeliverable(
                f"{self.root.parent} is not a tmpfs, so secrets as files would be on a disk"
            )
        with suppress(FileExistsError):
            self.root.mkdir(mode=0o711)
            self.root.chmod(0o711)
        status = self.root.lstat()
        is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if not is_own or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise SecretsUndeliverable(f"{self.root} is not a directory of the agent alone")


def is_in_memory(path: Path) -> bool:
    """Return whether a directory is on a file system in memory; False if that is unknown."""
    try:
        device = path.stat().st_dev
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return False
    place = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        # ID PARENT MAJOR:MINOR ROOT MOUNT OPTIONS [...] - TYPE SOURCE OPTIONS
        before, _, after = line.partition(" - ")
        if before.split(" ")[2:3] == [place]:
            return after.split(" ")[0] in _IN_MEMORY
    return False


def _names(fd: int) -> set[str]:
    with os.scandir(fd) as entries:
        return {entry.name for entry in entries}


def _write(name: str, value: str, owner: UnixUser | None, at: int) -> None:
    with closing(os.open(name, _WRITE, 0o400, dir_fd=at)) as fd:
        write_all(fd, value.encode())
        if owner is not None:
            os.fchown(fd, owner.uid, owner.gid)
