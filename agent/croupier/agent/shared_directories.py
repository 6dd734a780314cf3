"""Directories that several tasks share: those of groups, and volumes.

They are WORK_DIR/groups/FRAMEWORK/GROUP/NAME and WORK_DIR/volumes/OWNER/VOLUME/NAME. A volume stays
until the master orders its removal.

Rule: the tasks may run as different users, so each user may use the directory who knows its NAME,
which is random. Only the agent can list the directories above it. As with sandboxes, the agent
trusts no path: it opens each directory by descriptor, follows no link, and moves what is to be
removed away first.

Functions raise OSError if the system refuses what they need.
"""

from __future__ import annotations

import errno
import os
import secrets
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from croupier.agent.core.tasks import GroupKey
from croupier.agent.directories import directory
from croupier.agent.sandbox import Sandboxes
from croupier.model.ids import FrameworkId

_ACL: Final = "system.posix_acl_default"
# Version 2, and an entry for owner, group and others (tag, permissions, no id) each.
_FOR_ALL: Final = struct.pack(
    "<I" + "HHI" * 3, 2, 1, 7, 0xFFFFFFFF, 4, 7, 0xFFFFFFFF, 0x20, 7, 0xFFFFFFFF
)


class SharedDirectories:
    """The directories of groups under one directory; the janitor of `sandboxes` removes them."""

    def __init__(self, root: Path, sandboxes: Sandboxes) -> None:
        """Keep them in `root`, which exists."""
        self._root, self._sandboxes = root, sandboxes

    def make(self, group: GroupKey) -> str:
        """Return the path of a group's directory, which is made for the first of its tasks."""
        framework_id, group_id = _names(group)
        with (
            directory(self._root) as root,
            _made(framework_id, root) as framework,
            _made(group_id, framework) as above,
        ):
            if not os.listdir(above):  # noqa: PTH208 - by descriptor
                _make_for_all(above)
        return self.path(group)

    def path(self, group: GroupKey) -> str:
        """Return the path of a directory that exists; raises FileNotFoundError if it does not."""
        framework_id, group_id = _names(group)
        with (
            directory(self._root) as root,
            directory(framework_id, root) as framework,
            directory(group_id, framework, to_list=True) as above,
        ):
            for name in os.listdir(above):  # noqa: PTH208 - by descriptor
                return f"{self._root}/{framework_id}/{group_id}/{name}"
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), group_id)

    def remove(self, group: GroupKey) -> None:
        """Move the directory of a group away, if there is one, for the janitor."""
        framework_id, group_id = _names(group)
        with suppress(FileNotFoundError), directory(self._root) as root:
            with directory(framework_id, root) as framework:
                self._sandboxes.discard(group_id, framework)
            with suppress(OSError):
                # Fails if the framework has other groups.
                os.rmdir(framework_id, dir_fd=root)

    def keep(self, groups: Collection[GroupKey]) -> None:
        """Remove the directories of all other groups, which an earlier agent has left."""
        for group in self.listed():
            if group not in groups:
                with suppress(OSError):
                    self.remove(group)

    def listed(self) -> list[GroupKey]:
        """Return the groups that have a directory."""
        found: list[GroupKey] = []
        with directory(self._root, to_list=True) as root:
            for framework_id in os.listdir(root):  # noqa: PTH208 - by descriptor
                with suppress(OSError), directory(framework_id, root, to_list=True) as framework:
                    names = os.listdir(framework)  # noqa: PTH208 - by descriptor
                    found += [(FrameworkId(framework_id), name) for name in names]
        return found


def _names(group: GroupKey) -> GroupKey:
    """Return the names of two directories; raises OSError if they lead elsewhere."""
    if any(name in ("", ".", "..") or "/" in name or "\0" in name for name in group):
        raise OSError(errno.EINVAL, "Not the name of a directory")
    return group


def _make_for_all(above: int) -> None:
    """Make a directory of a random name, which all who know that can use."""
    name = secrets.token_hex(16)
    os.mkdir(name, 0o700, dir_fd=above)
    with directory(name, above, to_list=True) as made:
        os.fchmod(made, 0o777)
        # Tasks have a umask; where there are no access control lists, it holds.
        with suppress(OSError):
            os.setxattr(made, _ACL, _FOR_ALL)


@contextmanager
def _made(name: str, at: int) -> Iterator[int]:
    """Make a directory if it is missing, and open it for the context."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o711, dir_fd=at)
    with directory(name, at, to_list=True) as fd:
        yield fd
