"""The directory that is an agent's own: its lock, its records, its runs, its sandboxes."""

from __future__ import annotations

import asyncio
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from croupier.model.errors import Conflict, Unavailable

# An agent that was told to end may take a moment to do so.
LOCK_WAIT_S = 3.0
_LOCK_POLL_S = 0.05
# In which the agent makes and removes files.
PARTS = ("sandboxes", "runs", "removed")
# Is there from an agent's first start on.
LOCK = "lock"
# What an operator can do about a work dir that was removed under its agent.
RESTART = (
    "Tasks run on, but the agent forgets them when it ends: drain it, then start it again; or put"
    " back what was there"
)


class WorkDir:
    """A work dir that this process holds the lock of, until `close`."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        """Use `open` instead."""
        self.path, self.lock_fd = path, lock_fd

    @classmethod
    async def open(cls, path: Path) -> WorkDir:
        """Make the directory if need be, and lock it.

        Raises:
            Unavailable: if it cannot be made or written to.
            Conflict: if another agent still uses it after 3 s.
        """
        path, fd = _prepare(path)
        try:
            await _lock(fd, path)
        except BaseException:
            os.close(fd)
            raise
        return cls(path, fd)

    @property
    def sandboxes(self) -> Path:
        """Where the sandboxes are."""
        return self.path / "sandboxes"

    @property
    def runs(self) -> Path:
        """Where the shims write down what becomes of the tasks' processes."""
        return self.path / "runs"

    def is_in_place(self) -> bool:
        """Return whether the lock is still where it was opened.

        Raises:
            OSError: if that cannot be found out.
        """
        try:
            return os.path.samestat(os.lstat(self.path / LOCK), os.fstat(self.lock_fd))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def close(self) -> None:
        """Let another agent use the directory."""
        os.close(self.lock_fd)


def _prepare(path: Path) -> tuple[Path, int]:
    """Make what is missing; the absolute path, and a descriptor of the lock file."""
    path = path.expanduser().resolve()
    try:
        path.mkdir(parents=True, exist_ok=True)
        _refuse_links(path)
        (path / "sandboxes").mkdir(mode=0o711, exist_ok=True)
        fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        why = error.strerror or str(error)
        raise Unavailable(f"cannot use the work dir {path}: {why}") from error
    if not os.access(path / "sandboxes", os.W_OK | os.X_OK):
        os.close(fd)
        raise Unavailable(f"cannot use the work dir {path}: sandboxes is not writable")
    return path, fd


def _refuse_links(path: Path) -> None:
    """The agent removes what it no longer needs: it must not do so in somebody else's place.

    Raises:
        Unavailable: if a part of the work dir is elsewhere.
    """
    for part in PARTS:
        if (path / part).is_symlink():
            raise Unavailable(
                f"cannot use the work dir {path}: {part} is a link, and what is there may be"
                " somebody else's; give --work-dir the place itself"
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
