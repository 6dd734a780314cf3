"""The directory of one hierarchy in which an agent makes a group for each run.

Rule: only groups in this directory are changed or removed. Its name holds a digest of the agent's
work dir, it belongs to the agent's user, and it has no processes of its own.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, pidfd_send_signal
from typing import Final

from croupier.agent.directories import closing, directory
from croupier.model.errors import Unavailable

KILL_S: Final = 10.0
_POLL_S: Final = 0.005
PROCS: Final = "cgroup.procs"
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Errors of a group that was removed, before it is opened and after.
GONE: Final = frozenset({errno.ENOENT, errno.ENODEV})
_MOST_BYTES: Final = 65536


def kill_listed(processes: Callable[[], Collection[int]]) -> None:
    """Kill what `processes` lists, until it lists none; raises OSError if it does after 10 s."""
    deadline = time.monotonic() + KILL_S
    while found := set(processes()):
        opened = {pid: fd for pid in found if pid and (fd := _open(pid)) is not None}
        try:
            # A pid that is listed still, after it was opened, names the process of the group.
            for pid in found.intersection(processes()) & opened.keys():
                with suppress(ProcessLookupError):
                    pidfd_send_signal(opened[pid], SIGKILL)
        finally:
            for fd in opened.values():
                os.close(fd)
        _wait(deadline, len(found))


def wait_until_empty(has_processes: Callable[[], bool]) -> None:
    """Wait until killed processes have ended; raises OSError if some are left after 10 s."""
    deadline = time.monotonic() + KILL_S
    while has_processes():
        _wait(deadline, 0)


def _wait(deadline: float, left: int) -> None:
    if time.monotonic() >= deadline:
        number = f"{left} processes" if left else "processes"
        raise OSError(errno.EBUSY, f"{number} do not end")
    time.sleep(_POLL_S)


def _open(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def name_for(work_dir: Path) -> str:
    """Return the name of the groups of the agent on a work dir, the same in each of its lives.

    Work dirs of different machines or mount namespaces may have the same path. Raises OSError if
    the work dir does not exist.
    """
    found = work_dir.stat()
    identity = f"{work_dir.resolve()}\0{found.st_dev}\0{found.st_ino}"
    return f"croupier-{hashlib.sha256(os.fsencode(identity)).hexdigest()[:16]}"


class GroupDirectory:
    """A directory of groups, by descriptor. Methods raise OSError if the system refuses."""

    def __init__(self, path: str, *, create: bool = True) -> None:
        """Open the directory, and make it if missing; raises Unavailable if it is another's."""
        self.path = path
        if create:
            Path(path).mkdir(0o755, exist_ok=True)
        self._fd = os.open(path, _OPEN)
        found = os.fstat(self._fd)
        try:
            if found.st_uid != os.geteuid():
                raise Unavailable(f"{path} belongs to another user: user {found.st_uid}")
            if self.read(".", PROCS):
                raise Unavailable(f"{path} has processes of its own, and is not of this agent")
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        """Close the descriptor, and remove the directory unless it has groups."""
        os.close(self._fd)
        with suppress(OSError):
            Path(self.path).rmdir()

    def has(self, file: str) -> bool:
        """Return whether the groups have a file of this name."""
        return os.access(file, os.F_OK, dir_fd=self._fd)

    def make(self, name: str) -> None:
        """Make a group; one of an earlier start of the same run must be empty, and is replaced."""
        try:
            os.mkdir(name, 0o755, dir_fd=self._fd)
        except FileExistsError:
            self.remove(name)
            os.mkdir(name, 0o755, dir_fd=self._fd)

    def rename(self, name: str, new: str) -> None:
        """Rename a group; only in version 1."""
        os.rename(name, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def write(self, name: str, file: str, value: int | str) -> None:
        """Write to a file of a group."""
        with closing(os.open(f"{name}/{file}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._fd)) as fd:
            os.write(fd, str(value).encode())

    def read(self, name: str, file: str) -> str | None:
        """Return the content of a file of a group; None if the group or the file is missing."""
        try:
            with closing(
                os.open(f"{name}/{file}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._fd)
            ) as fd:
                return os.read(fd, _MOST_BYTES).decode()
        except OSError as error:
            if error.errno in GONE:
                return None
            raise

    def number(self, name: str, file: str) -> int:
        """Return the number in a file of a group; 0 for `max`, or if there is none."""
        text = (self.read(name, file) or "").strip()
        return int(text) if text.isdecimal() else 0

    def numbers(self, name: str, file: str) -> dict[str, int]:
        """Return the lines `KEY NUMBER` of a file of a group; empty if it is missing."""
        words = (line.split() for line in (self.read(name, file) or "").splitlines())
        return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdecimal()}

    def names(self) -> list[str]:
        """Return the names of the groups."""
        return self._groups_in(".")

    def exists(self, name: str) -> bool:
        """Return whether there is a group of this name."""
        return os.access(name, os.F_OK, dir_fd=self._fd)

    def has_processes(self, name: str) -> bool:
        """Return whether a group has processes, or groups that its task has made in it."""
        try:
            # Each group in it has a link to it.
            links = os.stat(name, dir_fd=self._fd).st_nlink
        except FileNotFoundError:
            return False
        return links > 2 or bool(self.read(name, PROCS))

    def processes(self, name: str) -> list[int]:
        """Return the pids of a group and of all groups in it; those of other namespaces are 0."""
        found: list[int] = []
        for group in self.tree(name):
            found += map(int, (self.read(group, PROCS) or "").split())
        return found

    def tree(self, name: str) -> Iterator[str]:
        """Yield the groups in a group, and then itself, by paths below this directory."""
        for child in self._groups_in(name):
            yield from self.tree(f"{name}/{child}")
        yield name

    def remove(self, name: str) -> None:
        """Remove a group without processes, if it exists, and all groups in it."""
        try:
            os.rmdir(name, dir_fd=self._fd)
        except FileNotFoundError:
            pass
        except OSError:
            for group in self.tree(name):
                os.rmdir(group, dir_fd=self._fd)

    def _groups_in(self, name: str) -> list[str]:
        with (
            suppress(FileNotFoundError),
            directory(name, self._fd, to_list=True) as fd,
            os.scandir(fd) as entries,
        ):
            return sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))
        return []
