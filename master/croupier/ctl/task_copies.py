"""Copies of files and directories of sandboxes, whose names and content a task chooses.

Rule: nothing is written outside of the place that the user names, whatever names and kinds the
sandbox has. A file has another name until it is complete.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from croupier.api.objects import Json
from croupier.cli.connection import Master, connected, with_advice
from croupier.cli.flags import Target
from croupier.cli.terminal import print_lines
from croupier.ctl import task_output
from croupier.model import errors
from croupier.model.printable import printable
from croupier.process.durable_files import write_all

# Files and directories of one copy, how deep they may be, and how many failures are reported.
MAX_ENTRIES: Final = 100_000
MAX_DEPTH: Final = 100
MAX_TOLD: Final = 20
FAILED: Final = 1
# Errors that the next file would have, too.
_OF_ALL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE})
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Names = tuple[str, ...]
T = TypeVar("T")


def copy_file(target: Target, task: task_output.TaskName, path: str, local: str) -> str:
    """Copy a sandbox's file to or into `local`; return the path. Raises CroupierError, OSError."""
    task = task_output.resolve(target, task)
    names = names_of(path)
    if not names:
        raise errors.InvalidRequest(
            "name a file: TASK:PATH, such as 7f3c:logs/server.log; -r copies the whole sandbox"
        )
    wanted = Path(local)
    if wanted.is_dir():
        wanted /= names[-1]

    async def copy() -> None:
        async with aclosing(TaskSource(target, task)) as source:
            parent = os.open(wanted.parent, _DIRECTORY)
            try:
                await _write_file(source.reader(path), parent, wanted.name, 0o666)
            finally:
                os.close(parent)

    try:
        asyncio.run(copy())
    except errors.CroupierError as error:
        if str(error).endswith("is a directory: list it"):
            raise errors.NotFound(f"{path} is a directory: croupier cp -r copies it") from None
        raise
    return str(wanted)


def copy_directory(target: Target, task: task_output.TaskName, path: str, local: str) -> int:
    """Copy a directory of a task's sandbox, or a file; tell what was copied; return the exit code.

    If `local` exists, the copy has the name of the directory below it, and existing files are
    replaced. The content of the sandbox itself goes into `local`. Raises as `copy_file`.
    """
    task, names = task_output.resolve(target, task), names_of(path)
    try:
        found = task_output.list_files(target, task, path)
    except errors.NotFound:
        # It may be a file; else this says what is missing.
        print_lines(f"wrote {copy_file(target, task, path, local)}")
        return 0
    place = Path(local)
    is_within = bool(names) and place.is_dir()
    if is_within:
        place /= names[-1]
    with suppress(FileExistsError):
        place.mkdir()

    async def copy() -> DirectoryCopy:
        root = os.open(place, _DIRECTORY | (os.O_NOFOLLOW if is_within else 0))
        try:
            async with aclosing(TaskSource(target, task)) as source:
                copying = DirectoryCopy(source, names, root)
                await copying.run(found)
                return copying
        finally:
            os.close(root)

    done = asyncio.run(copy())
    print_lines(f"wrote {place}: {done.text}")
    return FAILED if done.failures else 0


def names_of(path: str) -> Names:
    """Return the names in a file's path, none for the sandbox; raises InvalidRequest for `..`."""
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    if ".." in names:
        raise errors.InvalidRequest("a path must stay within the sandbox")
    return names


class TaskSource:
    """The sandbox of a task, read over one connection, which is made anew after it was lost."""

    def __init__(self, target: Target, task: task_output.TaskName) -> None:
        self._target, self._task = target, task
        self._stack = AsyncExitStack()
        self._master: Master | None = None

    async def list(self, path: str) -> Json:
        """Return the entries of a directory; raises CroupierError."""
        async with self._connected() as master:
            return await task_output.listed(master, self._task, path)

    def reader(self, path: str) -> task_output.Reader:
        """Return a reader of a file."""
        return task_output.Reader(self._connected, self._task, task_output.OutputPart(path))

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        self._master = None
        await self._stack.aclose()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Master]:
        """Return the leading master, for one question; raises as the function `connected`."""
        if self._master is None:
            self._master = await self._stack.enter_async_context(connected(self._target))
        try:
            yield self._master
        except errors.Unavailable:
            await self.aclose()
            raise
        except (errors.Unauthenticated, errors.PermissionDenied) as error:
            raise with_advice(error, self._target.credentials()) from None


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file or directory to copy; `names` lead to it from the directory that is copied."""

    names: Names
    kind: str
    mode: int


class DirectoryCopy:
    """The copy of one directory.

    Attributes:
        files: the number of those that are written.
        skipped: links and special files.
        failures: what could not be copied, and was reported.
    """

    def __init__(self, source: TaskSource, names: Names, root: int) -> None:
        """Copy the directory of these names to the open directory `root`."""
        self._source, self._names, self._root = source, names, root
        self._pending: list[_Entry] = []
        self._seen = 0
        self.files = self.skipped = self.failures = 0

    @property
    def text(self) -> str:
        """A summary of the copy."""
        text = f"{self.files} file{'' if self.files == 1 else 's'}"
        if self.skipped:
            text += f"; {self.skipped} links and special files were skipped"
        if self.failures:
            text += f"; {self.failures} failed"
        return text

    async def run(self, found: Json) -> None:
        """Copy everything; `found` is the top directory. Raises CroupierError or OSError."""
        self._add((), found)
        while self._pending:
            entry = self._pending.pop()
            try:
                if entry.kind == "directory":
                    await self._copy_directory(entry)
                else:
                    await self._copy_file(entry)
            except errors.PermissionDenied as error:
                # Output needs another permission than files.
                if self._names + entry.names not in (("stdout",), ("stderr",)):
                    raise
                self._fail(entry.names, str(error))
            except (errors.Unavailable, errors.Unauthenticated):
                raise
            except errors.CroupierError as error:
                self._fail(entry.names, str(error))
            except (OSError, UnicodeEncodeError) as error:
                if isinstance(error, OSError) and error.errno in _OF_ALL:
                    raise
                text = error.strerror if isinstance(error, OSError) else "not a valid name here"
                self._fail(entry.names, f"cannot be written: {text}")

    async def _copy_directory(self, entry: _Entry) -> None:
        with self._parent(entry.names) as parent:
            with suppress(FileExistsError):
                os.mkdir(entry.names[-1], entry.mode | 0o700, dir_fd=parent)
            # Fails if it is no directory, or a link to one.
            os.close(os.open(entry.names[-1], _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent))
        found = await _patiently(lambda: self._source.list(self._path(entry.names)))
        self._add(entry.names, found)

    async def _copy_file(self, entry: _Entry) -> None:
        path, name = self._path(entry.names), entry.names[-1]
        with self._parent(entry.names) as parent:
            await _patiently(
                lambda: _write_file(self._source.reader(path), parent, name, entry.mode)
            )
        self.files += 1

    def _add(self, within: Names, found: Json) -> None:
        """Copy the entries of a directory next."""
        if found["cut"]:
            self._fail(within, "has more files than an agent lists")
        entries = sorted(found["items"], key=lambda each: each["name"], reverse=True)
        for each in entries:
            self._seen += 1
            names = (*within, each["name"])
            if self._seen > MAX_ENTRIES or len(names) > MAX_DEPTH:
                raise errors.Unavailable(
                    f"{printable(self._path(names))}: a copy has at most {MAX_ENTRIES} files,"
                    f" {MAX_DEPTH} directories deep; copy parts of it"
                )
            self._add_entry(names, each)

    def _add_entry(self, names: Names, each: Json) -> None:
        name, kind = each["name"], each["kind"]
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            self._fail(names, "is not a valid file name")
        elif kind in ("file", "directory"):
            self._pending.append(_Entry(names, kind, each["mode"] & 0o777))
        else:
            self.skipped += 1

    @contextmanager
    def _parent(self, names: Names) -> Iterator[int]:
        """Open the directory that the last name is in; it was made here, or is a directory."""
        opened = os.dup(self._root)
        try:
            for name in names[:-1]:
                below = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=opened)
                os.close(opened)
                opened = below
            yield opened
        finally:
            os.close(opened)

    def _path(self, names: Names) -> str:
        return "/".join((*self._names, *names))

    def _fail(self, names: Names, why: str) -> None:
        self.failures += 1
        if self.failures <= MAX_TOLD:
            print_lines(f"{self._path(names) or 'the sandbox'}: {why}", file=sys.stderr)
        elif self.failures == MAX_TOLD + 1:
            print_lines("... and more failures, which are not shown", file=sys.stderr)


async def _write_file(reader: task_output.Reader, parent: int, name: str, mode: int) -> None:
    """Write a file into the open directory `parent`; raises CroupierError or OSError."""
    # A name of the sandbox may have any length.
    partial = f".croupier-{secrets.token_hex(8)}.part"
    fd = os.open(partial, _NEW, mode, dir_fd=parent)
    try:
        is_first = True
        async with aclosing(reader.read()) as chunks:
            async for data in chunks:
                left = reader.size - (reader.offset or 0)
                if is_first:
                    _check_space(fd, left)
                is_first = False
                await asyncio.to_thread(write_all, fd, data)
                if left <= 0:
                    # What is written meanwhile may have no end.
                    break
        os.replace(partial, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial, dir_fd=parent)
        raise
    finally:
        os.close(fd)


def _check_space(fd: int, size: int) -> None:
    """Raise OSError if `size` bytes do not fit: a task may make a file that looks very large."""
    free = os.fstatvfs(fd)
    if size > free.f_bavail * free.f_frsize:
        raise OSError(errno.EFBIG, f"{size} more bytes do not fit on the disk")


async def _patiently(act: Callable[[], Awaitable[T]]) -> T:
    """Return what `act` does; try again for a while if a master or agent is not there."""
    loop = asyncio.get_running_loop()
    until = loop.time() + task_output.PATIENCE_S
    while True:
        try:
            return await act()
        except errors.Unavailable:
            if loop.time() >= until:
                raise
            await asyncio.sleep(task_output.RETRY_S)
