"""Finds the agent's own control groups from what the kernel says of mounts and groups. Pure.

Version 1 has a hierarchy for each controller, or for a few together, with a group of a process in
each. Version 2 has one for all. A hybrid machine has both: then each controller is in one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_TYPES: Final = {"cgroup": 1, "cgroup2": 2}


@dataclass(frozen=True, slots=True)
class OwnGroup:
    """The group of this process in one hierarchy.

    Attributes:
        directory: its path; empty if no mount shows it.
        problem: why no groups can be made in it; empty if nothing is known to prevent that.
    """

    directory: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class OwnGroups:
    """The groups of this process.

    Attributes:
        v1: by controller.
        v2: None if version 2 is not mounted.
        parent: the group of version 2 that was asked for, if one was.
    """

    v1: Mapping[str, OwnGroup]
    v2: OwnGroup | None
    parent: OwnGroup | None = None


@dataclass(frozen=True, slots=True)
class _Mount:
    version: int
    root: str
    point: str
    options: frozenset[str]


def find_groups(mountinfo: str, groups: str, parent: str = "") -> OwnGroups:
    """Return the groups of a process.

    Args:
        mountinfo: the content of its `/proc/PID/mountinfo`.
        groups: the content of its `/proc/PID/cgroup`.
        parent: the path of a further group of version 2 to find.
    """
    mounts = list(_mounts(mountinfo))
    v1: dict[str, OwnGroup] = {}
    v2: OwnGroup | None = None
    above: OwnGroup | None = None
    for line in groups.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if not names and number == "0":
            found = [mount for mount in mounts if mount.version == 2]
            v2 = _own(found, path) if found else None
            above = _own(found, parent) if found and parent else None
        elif names and not names.startswith("name="):
            controllers = names.split(",")
            found = [
                mount
                for mount in mounts
                if mount.version == 1 and mount.options.issuperset(controllers)
            ]
            if found:
                v1.update(dict.fromkeys(controllers, _own(found, path)))
    return OwnGroups(v1, v2, above)


def _own(mounts: list[_Mount], path: str) -> OwnGroup:
    """Return the group at `path` of a hierarchy, through the mount that serves best."""
    shown = [(mount, _shown_at(mount, path)) for mount in mounts]
    seen = [(mount, directory) for mount, directory in shown if directory]
    if not seen:
        return OwnGroup("", f"no mount shows the group {path}")
    for mount, directory in reversed(seen):
        if "ro" not in mount.options:
            return OwnGroup(directory)
    mount, directory = seen[-1]
    return OwnGroup(directory, f"{mount.point} is mounted read-only")


def _shown_at(mount: _Mount, path: str) -> str:
    """Return where a mount shows the group; empty if it does not.

    A path that begins with `..` is outside of this process's control group namespace.
    """
    if path.startswith("/..") or mount.root.startswith("/..") or path.endswith(" (deleted)"):
        return ""
    root = mount.root.rstrip("/")
    if path != root and not path.startswith(f"{root}/"):
        return ""
    return f"{mount.point}{path.removeprefix(root)}".rstrip("/")


def _mounts(mountinfo: str) -> Iterator[_Mount]:
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields, types = before.split(" "), after.split(" ")
        if not separator or len(fields) < 6 or len(types) < 3 or types[0] not in _TYPES:
            continue
        options = frozenset(f"{fields[5]},{types[2]}".split(","))
        yield _Mount(_TYPES[types[0]], _unescaped(fields[3]), _unescaped(fields[4]), options)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
