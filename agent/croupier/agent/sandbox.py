"""Sandboxes: a directory per task, WORK_DIR/sandboxes/FRAMEWORK/TASK, with its output.

Rule: nothing in a sandbox is trusted. Its owner may replace stdout with a link to a file
that only the agent may read, so the agent opens plain files only and follows no link.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from croupier.agent.account import Account
from croupier.agent.core.tasks import Key
from croupier.model.errors import NotFound
from croupier.model.ids import check_id

Stream = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, ...] = get_args(Stream)

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe in place of the file must not hold the agent up.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Sandbox:
    """An open sandbox; the descriptors are for the task's process."""

    path: str
    stdout: int
    stderr: int


class Sandboxes:
    """All sandboxes under one directory."""

    def __init__(self, root: Path) -> None:
        """Keep them under `root`."""
        self.root = root
        self._root = str(root)
        self._occupied: set[Key] = set()

    def path_of(self, key: Key) -> str:
        """Where a task's sandbox is, or would be.

        Raises:
            InvalidRequest: if an id could lead out of the work dir.
        """
        framework_id, task_id = key
        check_id("framework", framework_id)
        check_id("task", task_id)
        return f"{self._root}/{framework_id}/{task_id}"

    def occupy(self, key: Key) -> None:
        """A task lives there."""
        self._occupied.add(key)

    def vacate(self, key: Key) -> None:
        """The task is no more."""
        self._occupied.discard(key)

    def is_occupied(self, key: Key) -> bool:
        """Whether a task lives there, or what became of it is not settled."""
        return key in self._occupied

    @contextmanager
    def create(self, key: Key, owner: Account | None = None) -> Iterator[Sandbox]:
        """Make a task's sandbox, with its output empty and open for as long as the context.

        The task occupies it from now on.

        Raises:
            OSError: if it cannot be made.
        """
        path = self.path_of(key)
        self.occupy(key)
        opened: list[int] = []
        try:
            self._make(path)
            opened.extend(os.open(f"{path}/{stream}", _WRITE, 0o644) for stream in STREAMS)
            if owner is not None:
                os.chown(path, owner.uid, owner.gid)
                for fd in opened:
                    os.fchown(fd, owner.uid, owner.gid)
            yield Sandbox(path, *opened)
        finally:
            for fd in opened:
                os.close(fd)

    def open_output(self, key: Key, stream: Stream) -> int:
        """A descriptor to read a task's output from; must be closed.

        Raises:
            InvalidRequest: if an id is illegal.
            NotFound: if there is no such sandbox (any more), or no plain file in it.
        """
        try:
            fd = os.open(f"{self.path_of(key)}/{stream}", _READ)
        except OSError as error:
            raise NotFound(f"no {stream} of task {key[1]}: {error.strerror}") from None
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            os.close(fd)
            raise NotFound(f"{stream} of task {key[1]} is not a plain file of its own")
        return fd

    def _make(self, path: str) -> None:
        try:
            Path(path).mkdir(0o700)
        except FileNotFoundError:
            Path(path).parent.mkdir(mode=0o711, parents=True, exist_ok=True)
            Path(path).mkdir(0o700)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise
