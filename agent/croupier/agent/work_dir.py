"""The work dir of an agent: its lock, records, run files and sandboxes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from croupier.model.errors import Conflict, Unavailable

# The time that a stopping agent may take to release the lock.
LOCK_WAIT_S = 3.0
_LOCK_POLL_S = 0.05
# Permission of all users to pass through a directory.
_PASS = 0o011
# Directories in which the agent makes and removes files.
PARTS = ("sandboxes", "groups", "volumes", "runs", "execs", "removed", "spare", "executors")
# A file that exists from an agent's first start on.
LOCK = "lock"
# Advice to the operator of an agent whose work dir was removed.
RESTART = (
    "Tasks keep running, but the agent forgets them when it ends: drain it, then start it again;"
    " or restore the work dir"
)


class WorkDir:
    """A work dir that this process has locked until `close`.

    Attributes:
        runs: has the run files of tasks, in which shims record starts and ends.
        execs: has those of commands beside tasks.
    """

    def __init__(self, path: Path, lock_fd: int) -> None:
        """Call `open` instead."""
        self.path, self.lock_fd = path, lock_fd
        self.sandboxes = path / "sandboxes"
        self.groups, self.volumes = path / "groups", path / "volumes"
        self.runs, self.execs = path / "runs", path / "execs"

    @classmethod
    async def open(cls, path: Path, *, is_passable: bool = False) -> WorkDir:
        """Make the directory if it is missing, and lock it.

        With `is_passable`, all users may pass through it to their sandboxes, and none but the
        agent's may list it. Directories above it that exist stay as they are.

        Raises:
            Unavailable: if it cannot be made or written to.
            Conflict: if another agent still uses it after 3 s.
        """
        path, fd = _prepare(path, is_passable=is_passable)
        try:
            await _lock(fd, path)
        except BaseException:
            os.close(fd)
            raise
        return cls(path, fd)

    def is_in_place(self) -> bool:
        """Return whether the lock is still where it was opened.

        Raises OSError if the file system fails.
        """
        try:
            return os.path.samestat(os.lstat(self.path / LOCK), os.fstat(self.lock_fd))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def close(self) -> None:
        """Release the lock."""
        os.close(self.lock_fd)


def _prepare(path: Path, *, is_passable: bool) -> tuple[Path, int]:
    """Make missing parts; return the absolute path and a descriptor of the lock file."""
    path = path.expanduser().resolve()
    try:
        if is_passable:
            _make_passable(path)
        path.mkdir(parents=True, exist_ok=True)
        _refuse_links(path)
        for part in ("sandboxes", "groups", "volumes"):
            (path / part).mkdir(mode=0o711, exist_ok=True)
        if is_passable:
            for passed in (path, path / "sandboxes", path / "groups", path / "volumes"):
                _let_pass(passed)
        fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        why = error.strerror or str(error)
        raise Unavailable(f"cannot use the work dir {path}: {why}") from error
    if not os.access(path / "sandboxes", os.W_OK | os.X_OK):
        os.close(fd)
        raise Unavailable(f"cannot use the work dir {path}: sandboxes is not writable")
    return path, fd


def _make_passable(path: Path) -> None:
    """Make the missing directories of a path, whatever the umask is."""
    for missing in [each for each in (*reversed(path.parents), path) if not each.exists()]:
        missing.mkdir(exist_ok=True)
        missing.chmod(0o711)


def _let_pass(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _PASS != _PASS:
        path.chmod(mode | _PASS)


def _refuse_links(path: Path) -> None:
    """Refuse a work dir with a link in it: the agent would remove files elsewhere."""
    for part in PARTS:
        if (path / part).is_symlink():
            raise Unavailable(
                f"cannot use the work dir {path}: {part} is a link, and the agent would remove"
                " files elsewhere; give --work-dir the directory itself"
            )


async def _lock(fd: int, path: Path) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LOCK_WAIT_S):
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                await asyncio.sleep(_LOCK_POLL_S)
    raise Conflict(f"another agent uses the work dir {path}")
