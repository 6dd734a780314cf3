"""Volumes: directories on agents that stay when the tasks that use them have ended.

A volume is a hold of disk: its owner is charged for it as long as it lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.model.ids import NO_FRAMEWORK, FrameworkId, HoldId, check_id, check_role
from croupier.model.value import value

MAX_VOLUMES: Final = 16
# Bytes of a role that a volume is held for: agents name a directory by it.
MAX_VOLUME_ROLE: Final = 200
# Resources count disk in these; volumes are made in bytes.
MIB: Final = 1 << 20


@value
class Volume:
    """A volume of a framework, or of a role; the other one is empty."""

    volume_id: HoldId
    framework_id: FrameworkId
    role: str = ""

    @property
    def owner(self) -> str:
        """The framework or role."""
        return self.framework_id or self.role

    def check(self) -> Volume:
        """Return the volume; raises InvalidRequest if an id is bad, or it has not one owner."""
        check_id("volume", self.volume_id)
        if bool(self.framework_id) == bool(self.role):
            raise InvalidRequest("a volume is either of a framework or of a role")
        if self.role:
            check_role(self.role)
        else:
            check_id("framework", self.framework_id)
        return self


@value
class VolumeMount:
    """A volume that a task uses.

    Attributes:
        path: the name in the task's sandbox under which it finds the volume.
        role: the role that the volume is held for; empty if it is the framework's own.
    """

    volume_id: str
    path: str
    read_only: bool = False
    role: str = ""

    @property
    def size(self) -> int:
        """Characters of its text."""
        return len(self.volume_id) + len(self.path) + len(self.role)

    def volume(self, framework_id: FrameworkId) -> Volume:
        """Return the volume, for a task of this framework."""
        return Volume(
            HoldId(self.volume_id), NO_FRAMEWORK if self.role else framework_id, self.role
        )


def check_mounts(mounts: Sequence[VolumeMount], *, is_boxed: bool) -> None:
    """Raise InvalidRequest if a task cannot use these; `is_boxed`: it sees files of its own."""
    if len(mounts) > MAX_VOLUMES:
        raise InvalidRequest(f"a task uses at most {MAX_VOLUMES} volumes")
    for mount in mounts:
        check_id("volume", mount.volume_id)
        _check_path(mount.path)
        if mount.path in ("stdout", "stderr"):
            raise InvalidRequest(f"a volume cannot have the path {mount.path} of the task's output")
        if mount.role:
            check_role(mount.role)
        if mount.read_only and not is_boxed:
            raise InvalidRequest(
                f"volume {mount.volume_id} can be read-only only for a task with namespaces or an"
                " image"
            )
    for named in ([mount.path for mount in mounts], [mount.volume_id for mount in mounts]):
        if len(set(named)) < len(named):
            raise InvalidRequest("a task uses each volume once, and each path for one volume")


def _check_path(path: str) -> None:
    try:
        check_id("path", path)
    except InvalidRequest:
        raise InvalidRequest(f"the path {path!r} of a volume is not one plain name") from None
