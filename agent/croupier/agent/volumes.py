"""The volumes of an agent: WORK_DIR/volumes/OWNER/VOLUME/NAME.

Rule: the directory is the record: what is there is listed in REGISTER, and the master orders what
is to be there. Each has an owner in its path, so no task of another owner finds it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from croupier.agent.core.tasks import GroupKey
from croupier.agent.directories import directory
from croupier.agent.isolation.disk import ProjectQuotas
from croupier.agent.isolation.disk_watch import most_files
from croupier.agent.sandbox import Sandboxes
from croupier.agent.shared_directories import SharedDirectories
from croupier.model.agent_orders import SetVolume
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.ids import NO_FRAMEWORK, FrameworkId, HoldId
from croupier.model.volume import Volume
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")
# Before a role in the name of a directory. Ids of frameworks have no blanks.
_ROLE = "role "


class Volumes:
    """The directories of volumes; with `quotas`, the kernel bounds their sizes."""

    def __init__(self, root: Path, sandboxes: Sandboxes, quotas: ProjectQuotas | None) -> None:
        """Keep them in `root`; the janitor of `sandboxes` removes them."""
        self._directories = SharedDirectories(root, sandboxes)
        self._quotas = quotas

    def listed(self) -> set[Volume]:
        """Return the volumes that have a directory."""
        found = set()
        for key in self._directories.listed():
            # Other names are none of the agent's.
            with suppress(InvalidRequest):
                found.add(_volume(key))
        return found

    def path(self, volume: Volume) -> str:
        """Return the path of a volume; raises Unavailable if it has no directory."""
        try:
            return self._directories.path(_key(volume))
        except OSError as error:
            raise Unavailable(
                f"volume {volume.volume_id} has no directory on this agent: {error.strerror}"
            ) from error

    def set(self, order: SetVolume) -> None:
        """Make the directory of a volume, if there is none, or remove it.

        If the system refuses, the next session tries again.
        """
        key = _key(order.volume)
        try:
            if order.size:
                self._limit(self._directories.make(key), order.size)
                return
            with suppress(FileNotFoundError):
                self._limit(self._directories.path(key), 0)
            self._directories.remove(key)
        except OSError as error:
            what = "make" if order.size else "remove"
            _log.error(
                "volume_failed", volume_id=order.volume.volume_id, what=what, reason=str(error)
            )

    def _limit(self, path: str, size: int) -> None:
        """Have the kernel bound a directory to `size` bytes; 0 ends that."""
        if self._quotas is None:
            return
        with directory(path, to_list=True) as fd:
            if size:
                self._quotas.limit(fd, size, most_files(size))
            else:
                self._quotas.release(fd)


def _key(volume: Volume) -> GroupKey:
    owner = _ROLE + volume.role.replace("/", " ") if volume.role else volume.framework_id
    return FrameworkId(owner), volume.volume_id


def _volume(key: GroupKey) -> Volume:
    owner, name = key
    is_role = owner.startswith(_ROLE)
    role = owner.removeprefix(_ROLE).replace(" ", "/") if is_role else ""
    return Volume(HoldId(name), NO_FRAMEWORK if is_role else owner, role).check()
