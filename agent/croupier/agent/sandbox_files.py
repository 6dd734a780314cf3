"""Opens and lists the files of a sandbox, whose content a task chooses, for readers elsewhere.

Rule: nothing outside of the sandbox is opened, and nothing but regular files and directories that
belong to the task. A file is opened only once it is known to be regular, because to open a device
or a pipe has effects.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from croupier.agent.core.tasks import Key
from croupier.agent.directories import closing, open_directory, open_directory_beneath
from croupier.agent.sandbox import Sandboxes
from croupier.model.errors import InvalidRequest, NotFound

MAX_PATH: Final = 4096
MAX_DEPTH: Final = 100
# Entries of a directory that are listed.
MAX_ENTRIES: Final = 10_000
# Characters of the names in a list, as JSON: a master parses at most 2 MiB at once.
MAX_NAMES: Final = 900_000
_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS: Final = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link"))


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An entry of a directory.

    Attributes:
        name: with replacement characters where it is not UTF-8; such a file cannot be read.
        kind: file, directory, link or other.
        size: bytes of a file; 0 of others.
        modified_ms: time of the last write, in milliseconds since 1970.
        mode: the permission bits.
    """

    name: str
    kind: str
    size: int
    modified_ms: int
    mode: int


def components_of(path: str) -> tuple[str, ...]:
    """Return the names in a relative path; a path of the sandbox itself has none.

    Raises InvalidRequest if it is absolute, leads upwards or is too long.
    """
    if path.startswith("/") or "\0" in path or len(path.encode(errors="replace")) > MAX_PATH:
        raise InvalidRequest("a file is named by its path below the sandbox, such as logs/a.log")
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    if ".." in names or len(names) > MAX_DEPTH:
        raise InvalidRequest("a path does not leave the sandbox")
    return names


def open_file(sandboxes: Sandboxes, key: Key, path: str) -> int:
    """Open a file of a task's sandbox for reading; return a descriptor.

    Raises:
        InvalidRequest: if an id or the path is illegal, or names a directory.
        NotFound: if there is no such file, or it may not be read.
    """
    names = components_of(path)
    if not names:
        raise InvalidRequest("this names a directory: list it")
    with _reported(key, path), sandboxes.opened(key) as (home, owners):
        with closing(open_directory_beneath(home, names[:-1])) as parent:
            found = os.open(names[-1], _LOOK, dir_fd=parent)
        with closing(found):
            seen = os.fstat(found)
            if stat.S_ISDIR(seen.st_mode):
                raise InvalidRequest(f"{path} is a directory: list it")
            if not stat.S_ISREG(seen.st_mode):
                raise OSError(errno.EINVAL, "Not a regular file")
            # A task may link a file of another user here, which it cannot read itself.
            if seen.st_nlink > 1 or seen.st_uid not in owners:
                raise OSError(errno.EPERM, "Not a file of the task alone")
            fd = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC)
            return sandboxes.checked(key, fd)


def list_directory(sandboxes: Sandboxes, key: Key, path: str) -> tuple[list[FileEntry], bool]:
    """Return the entries of a directory by name, and whether there are more than `MAX_ENTRIES`.

    Raises:
        InvalidRequest: if an id or the path is illegal.
        NotFound: if there is no such directory, or it may not be read.
    """
    names = components_of(path)
    if not names and sandboxes.silent.has_given(key):
        return [], False
    with (
        _reported(key, path),
        sandboxes.opened(key) as (home, owners),
        closing(open_directory_beneath(home, names)) as found,
    ):
        if os.fstat(found).st_uid not in owners:
            raise OSError(errno.EPERM, "Not a directory of the task")
        opened = open_directory(".", found, to_list=True)
        try:
            listed = _listed(opened)
        except BaseException:
            os.close(opened)
            raise
        os.close(sandboxes.checked(key, opened))
        return listed


def _listed(opened: int) -> tuple[list[FileEntry], bool]:
    entries: list[FileEntry] = []
    left, is_cut = MAX_NAMES, False
    with os.scandir(opened) as found:
        for each in found:
            if len(entries) == MAX_ENTRIES:
                is_cut = True
                break
            try:
                seen = each.stat(follow_symlinks=False)
            except OSError:
                continue
            kind = next((name for check, name in _KINDS if check(seen.st_mode)), "other")
            name = os.fsencode(each.name).decode(errors="replace")
            left -= len(json.dumps(name))
            if left < 0:
                is_cut = True
                break
            size, mode = seen.st_size if kind == "file" else 0, stat.S_IMODE(seen.st_mode)
            entries.append(FileEntry(name, kind, size, seen.st_mtime_ns // 1_000_000, mode))
    return sorted(entries, key=attrgetter("name")), is_cut


@contextmanager
def _reported(key: Key, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        named = path if path.isprintable() else repr(path)
        missing = f"file {named}" if path else "files"
        raise NotFound(f"no {missing} of task {key[1]}: {error.strerror}") from None
