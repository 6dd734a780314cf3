"""Sandboxes: a directory for each task, WORK_DIR/sandboxes/FRAMEWORK/TASK, with its output.

Rule: the agent trusts neither a sandbox nor its path. A task may replace stdout by a link or a
pipe; if it runs as the agent's user, also the sandbox itself. So each run gets a new directory and
new files, every component is opened by descriptor, and the agent opens only regular files and
follows no link. Once a task with a uid of its own has ended, the agent owns its sandbox.

A new directory may be the empty one of a task of the same framework that wrote nothing; see
`silent_tasks`. Another process of the same user may have it open: it could open the sandbox of any
task as well.

Functions raise OSError if the system refuses what they need.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from croupier.agent.core.tasks import Key
from croupier.agent.directories import (
    closing,
    directory,
    open_directory,
    open_directory_beneath,
    open_regular,
)
from croupier.agent.silent_tasks import SilentTasks
from croupier.agent.unix_user import UnixUser
from croupier.model.errors import InvalidRequest, NotFound
from croupier.model.ids import FrameworkId, TaskId, check_id

Stream = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, ...] = get_args(Stream)

NO_SANDBOX = "there is no sandbox; it was removed, or the task wrote nothing"

_NEW = stat.S_IFDIR | 0o700
# Not O_NONBLOCK, which the task would inherit. O_EXCL makes sure that no pipe is opened.
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Sandbox:
    """An open sandbox, a new directory, of which `home` is a descriptor."""

    path: str
    home: int
    owner: UnixUser | None

    @contextmanager
    def streams(self) -> Iterator[tuple[int, int]]:
        """Create the output files, open within the context."""
        opened: list[int] = []
        try:
            for stream in STREAMS:
                opened.append(fd := os.open(stream, _CREATE, 0o600, dir_fd=self.home))
                if self.owner is not None:
                    os.fchown(fd, self.owner.uid, self.owner.gid)
            yield opened[0], opened[1]
        finally:
            for fd in opened:
                os.close(fd)


class NothingWritten(NotFound):
    """The task has written nothing to such an output file."""


class Sandboxes:
    """The sandboxes under one directory.

    Attributes:
        silent: the tasks that have ended and wrote nothing.
        occupied: those whose sandboxes are in use: the agent has not forgotten them.
    """

    def __init__(self, root: Path) -> None:
        """Keep sandboxes in `root`, and those to be removed in a directory beside it."""
        self.root = root
        self.trash = root.with_name("removed")
        # Output files that no task has yet; see shim/output.h.
        self.spare = root.with_name("spare")
        self.silent = SilentTasks()
        self.occupied: set[Key] = set()
        self._replaced: list[Path] = []

    def path_of(self, key: Key) -> str:
        """Return the path of a task's sandbox, which may not exist.

        Raises InvalidRequest if an id could lead out of the work dir.
        """
        framework_id, task_id = _checked(key)
        return f"{self.root}/{framework_id}/{task_id}"

    def vacate(self, key: Key) -> Key | None:
        """Mark a sandbox as no longer in use; return one of no further use, None: there is none."""
        self.occupied.discard(key)
        return self.silent.retire(key)

    def has(self, key: Key) -> bool:
        """Return whether the task's sandbox exists, or did; False if that cannot be read."""
        try:
            # Nothing is opened, so links in the path do no harm.
            return self.silent.has_given(key) or os.path.lexists(self.path_of(key))
        except InvalidRequest:
            return False

    @contextmanager
    def create(
        self, key: Key, owner: UnixUser | None = None, *, again: bool = False
    ) -> Iterator[Sandbox]:
        """Create a task's sandbox, open within the context.

        The task occupies it from now on. With `again`, an existing one is moved away.
        """
        path = self.path_of(key)
        self.occupied.add(key)
        with closing(self._make(key, again=again)) as home:
            if owner is not None:
                os.fchown(home, owner.uid, owner.gid)
            yield Sandbox(path, home, owner)

    def open_output(self, key: Key, stream: Stream, flags: int = os.O_RDONLY) -> int:
        """Open a task's output, by default for reading; return a descriptor.

        Raises:
            InvalidRequest: if an id is illegal.
            NothingWritten: if the task has written no such file.
            NotFound: if there is no such sandbox, or no regular file in it.
        """
        try:
            with self.opened(key) as (home, owners):
                fd = self.checked(key, open_regular(stream, flags, home))
        except FileNotFoundError as error:
            if not self.has(key):
                raise NotFound(f"no {stream} of task {key[1]}: {error.strerror}") from None
            raise NothingWritten(f"task {key[1]} has written no {stream}") from None
        except OSError as error:
            raise NotFound(f"no {stream} of task {key[1]}: {error.strerror}") from None
        opened = os.fstat(fd)
        # A task may link or move a file of another user here, which it cannot read itself.
        if opened.st_nlink > 1 or opened.st_uid not in owners:
            os.close(fd)
            raise NotFound(f"{stream} of task {key[1]} is not a file of its own")
        return fd

    @contextmanager
    def opened(self, key: Key) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Open a task's sandbox for the context; return it with the uids of the task's own files.

        Raises:
            InvalidRequest: if an id is illegal.
            FileNotFoundError: if there is none; the message tells what may have become of it.
        """
        key = _checked(key)
        try:
            opened = open_directory_beneath(self.root, key)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, NO_SANDBOX) from None
        with closing(opened) as home:
            found = os.fstat(home)
            # The agent may have taken over the sandbox.
            is_taken_over = found.st_uid == os.geteuid() == 0 and found.st_gid != 0
            yield home, (found.st_uid, found.st_gid) if is_taken_over else (found.st_uid,)

    def checked(self, key: Key, fd: int) -> int:
        """Return `fd`, which was opened in the task's sandbox, unless another task has that now.

        Raises FileNotFoundError if so; `fd` is closed.
        """
        if self.silent.has_given(key):
            os.close(fd)
            raise FileNotFoundError(errno.ENOENT, "The task wrote nothing")
        return fd

    def open_to_list(self, key: Key) -> int:
        """Open a task's sandbox; return a descriptor that can list it."""
        with self.opened(key) as (home, _):
            return open_directory(".", home, to_list=True)

    def owner_of(self, key: Key) -> int:
        """Return the uid of the owner of a task's sandbox; -1 if there is none."""
        try:
            with self.opened(key) as (home, _):
                return os.fstat(home).st_uid
        except (InvalidRequest, OSError):
            return -1

    def take_over(self, key: Key, uid: int) -> None:
        """Become the owner of the sandbox of a user whose last process has ended, if it has one.

        The group stays that of the user, without permission: it tells whose the files are.
        """
        framework_id, task_id = _checked(key)
        with (
            suppress(FileNotFoundError),
            closing(open_directory_beneath(self.root, (framework_id,))) as framework,
            directory(task_id, framework, to_list=True) as home,
        ):
            if os.fstat(home).st_uid == uid:
                os.fchown(home, os.geteuid(), uid)
                # After the owner, who could change it. This disables an ACL, too.
                os.fchmod(home, 0o700)

    def existing(self) -> Iterator[tuple[Key, float]]:
        """Yield each existing sandbox with the time of its last write, in seconds since 1970."""
        with directory(self.root, to_list=True) as root:
            for framework_id in _directories(root):
                with suppress(OSError), directory(framework_id, root, to_list=True) as framework:
                    for task_id in _directories(framework):
                        key = (FrameworkId(framework_id), TaskId(task_id))
                        yield key, _last_written(task_id, framework)

    def move_out(self, key: Key) -> Path | None:
        """Move a sandbox into the trash; return its new path, or None if there was none.

        Raises InvalidRequest if an id is illegal.
        """
        framework_id, task_id = _checked(key)
        self.silent.forget(key)
        try:
            with directory(self.root) as root:
                with directory(framework_id, root) as framework:
                    moved = self._move_to_trash(task_id, framework)
                with suppress(OSError):
                    # Fails if the framework has other sandboxes.
                    os.rmdir(framework_id, dir_fd=root)
        except FileNotFoundError:
            return None
        return moved

    def empty(self, key: Key) -> None:
        """Move all but the output of a task that has ended into the trash."""
        name = secrets.token_hex(8)
        self.trash.mkdir(mode=0o700, exist_ok=True)
        with closing(self.open_to_list(key)) as home, directory(self.trash) as trash:
            os.mkdir(name, 0o700, dir_fd=trash)
            self._replaced.append(self.trash / name)
            for each in os.listdir(home):  # noqa: PTH208 - by descriptor
                if each not in STREAMS:
                    os.rename(each, f"{name}/{each}", src_dir_fd=home, dst_dir_fd=trash)

    def discard(self, name: str, at: int) -> None:
        """Move a directory below the open `at` into the trash, which the janitor empties."""
        self._replaced.append(self._move_to_trash(name, at))

    def take_replaced(self) -> list[Path]:
        """Return what was moved into the trash since the last call, and is to be removed."""
        replaced, self._replaced = self._replaced, []
        return replaced

    def _move_to_trash(self, name: str, at: int) -> Path:
        moved = secrets.token_hex(8)
        # It may still hold sandboxes that an earlier life could not remove.
        self.trash.mkdir(mode=0o700, exist_ok=True)
        with directory(self.trash) as trash:
            os.rename(name, moved, src_dir_fd=at, dst_dir_fd=trash)
        return self.trash / moved

    def _make(self, key: Key, *, again: bool) -> int:
        """Create the directory of one run; return a descriptor."""
        framework_id, _ = key
        self.silent.forget(key)
        # The framework's directory is removed with its last sandbox.
        for _ in range(3):
            try:
                return self._make_in_place(key)
            except FileNotFoundError:
                with directory(self.root) as root, suppress(FileExistsError):
                    os.mkdir(framework_id, 0o711, dir_fd=root)
            except FileExistsError:
                if not again:
                    raise
                moved = self.move_out(key)
                if moved is not None:
                    self._replaced.append(moved)
        return self._make_in_place(key)

    def _make_in_place(self, key: Key) -> int:
        framework_id, task_id = key
        with closing(open_directory_beneath(self.root, (framework_id,))) as framework:
            spare = None if self.has(key) else self.silent.give(framework_id)
            if spare is not None:
                with suppress(OSError):
                    return _renamed(spare, task_id, framework)
                # Another process of this user has changed it.
                if (moved := self.move_out(key)) is not None:
                    self._replaced.append(moved)
            os.mkdir(task_id, 0o700, dir_fd=framework)
            return open_directory(task_id, framework, to_list=True)


def _renamed(spare: TaskId, task_id: TaskId, framework: int) -> int:
    """Rename an empty sandbox; return a descriptor."""
    os.rename(spare, task_id, src_dir_fd=framework, dst_dir_fd=framework)
    home = open_directory(task_id, framework, to_list=True)
    found = os.fstat(home)
    is_own = found.st_uid == os.geteuid() and found.st_mode == _NEW
    if is_own and not os.listdir(home):  # noqa: PTH208 - by descriptor
        return home
    os.close(home)
    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))


def _checked(key: Key) -> Key:
    framework_id, task_id = key
    check_id("framework", framework_id)
    check_id("task", task_id)
    return key


def _directories(fd: int) -> list[str]:
    with os.scandir(fd) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _last_written(task_id: str, framework: int) -> float:
    """Return the time of the last write to a sandbox, in seconds since 1970; 0 if unknown."""
    times = [0.0]
    for name in (task_id, *(f"{task_id}/{stream}" for stream in STREAMS)):
        with suppress(OSError):
            times.append(os.stat(name, dir_fd=framework, follow_symlinks=False).st_mtime)
    return max(times)
