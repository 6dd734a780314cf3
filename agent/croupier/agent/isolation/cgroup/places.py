"""Places for the groups of an agent: those that are possible, and the present one.

Version 1 has a hierarchy for each controller, or for a few together, with a group of a process in
each. Version 2 has one for all. A hybrid machine has both: then each controller is in one of them.

In version 2 a group with groups may have no processes. Its rules are those of systemd: a service
may make groups in its own group if the unit says `Delegate=yes`. Tasks and their shims are best in
the group of another unit, which the agent is told of (`--cgroup-parent`): then the agent has its
own group for itself, and can be started again while tasks run. Otherwise the agent moves into a
group in its own. In a container it takes all processes of the container along.

An agent may be started from another group than the one before it, such as another login. Its
groups are then in another place, while tasks of the earlier one are in theirs. So the places are
recorded in the work dir, in `cgroup.json`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from croupier.agent.isolation.cgroup.directory import PROCS
from croupier.model.errors import Unavailable
from croupier.process.durable_files import replace_file

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_TYPES: Final = {"cgroup": 1, "cgroup2": 2}
# The group of the agent itself, and of its shims.
LEAF: Final = "croupier-agent"
# The group of shims, below a parent that is not the agent's own group.
SHIMS: Final = "croupier-shims"
_MARKS: Final = ("trusted.delegate", "user.delegate")
_UNITS: Final = (".service", ".scope", ".slice")
_HOW: Final = "under systemd, use croupier-tasks.service and --cgroup-parent, or Delegate=yes"
FILE: Final = "cgroup.json"


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
    """Return a process's groups by /proc/PID/mountinfo and cgroup, and `parent` of version 2."""
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


def delegated_base(
    own: Path, controllers: Collection[str], get_mark: Callable[[str, str], bytes] = os.getxattr
) -> Path:
    """Return the group in which the agent may make groups; this may move the agent within it.

    Those of `controllers` that it has are enabled in it. `get_mark` reads an extended attribute.
    Raises Unavailable if the group is not the agent's to divide, with the reason.
    """
    base = own.parent if own.name == LEAF else own
    has = _controllers_of(base, controllers)
    # Only the root of the whole machine has no type, and may have processes beside groups.
    if base == own and (own / "cgroup.type").exists():
        _check_delegated(own, get_mark)
        _move_into_leaf(own)
    _enable(base, has)
    return base


def separate_base(
    parent: Path, controllers: Collection[str], get_mark: Callable[[str, str], bytes] = os.getxattr
) -> Path:
    """Return a group that was delegated for tasks, apart from that of the agent; makes SHIMS in it.

    Raises Unavailable if there is none, or it is not the agent's to divide, with the reason.
    """
    if not parent.is_dir():
        raise Unavailable(f"--cgroup-parent: there is no group {parent}: start its unit")
    has = _controllers_of(parent, controllers)
    _check_delegated(parent, get_mark)
    if (parent / PROCS).read_text().strip():
        raise Unavailable(f"--cgroup-parent: {parent} has processes of its own")
    _enable(parent, has)
    (parent / SHIMS).mkdir(exist_ok=True)
    return parent


def _controllers_of(base: Path, controllers: Collection[str]) -> list[str]:
    """Return those of the controllers that a group has and this process may use."""
    found = (base / "cgroup.controllers").read_text().split()
    has = [each for each in controllers if each in found]
    if not has:
        raise Unavailable(f"{base} has no controller of {', '.join(controllers)}")
    if not os.access(base / "cgroup.subtree_control", os.W_OK) or not os.access(base, os.W_OK):
        raise Unavailable(f"{base} may not be written to: {_HOW}")
    return has


def _enable(base: Path, controllers: Collection[str]) -> None:
    for controller in controllers:
        # A controller that is refused is missing among the files of groups.
        with suppress(OSError):
            (base / "cgroup.subtree_control").write_text(f"+{controller}")


def _check_delegated(own: Path, get_mark: Callable[[str, str], bytes]) -> None:
    kind = (own / "cgroup.type").read_text().strip()
    if kind != "domain":
        raise Unavailable(f"{own} is of the type {kind}, which cannot have controllers")
    if not own.name.endswith(_UNITS):
        return
    for mark in _MARKS:
        with suppress(OSError):
            if get_mark(str(own), mark).strip() in (b"1", b"yes", b"true"):
                return
    raise Unavailable(f"{own} is not delegated: {_HOW}")


def _move_into_leaf(own: Path) -> None:
    """Move this process, which must be alone, from its group into one in it.

    The root of a namespace of groups is a container's: its other processes are moved, too.
    """
    me = str(os.getpid())
    others = set((own / PROCS).read_text().split()) - {me}
    if others and not os.path.ismount(own):
        raise Unavailable(
            f"{len(others)} other processes are in {own}, so it cannot have groups with"
            f" controllers; {_HOW}"
        )
    leaf = own / LEAF
    leaf.mkdir(exist_ok=True)
    for pid in (*others, me):
        # One may have ended.
        with suppress(ProcessLookupError):
            (leaf / PROCS).write_text(pid)


@dataclass(frozen=True, slots=True)
class Place:
    """Directories of groups: by controller in version 1; in version 2 the only one, by "all"."""

    version: int
    directories: Mapping[str, str]


def read_places(work_dir: Path, name: str) -> list[Place]:
    """Return the recorded places whose directories have this name, the latest first."""
    try:
        read = json.loads((work_dir / FILE).read_text())
        found = [Place(int(each["version"]), dict(each["directories"])) for each in read]
    except (OSError, ValueError, TypeError, KeyError):
        return []
    return [
        place
        for place in found
        if all(Path(str(path)).name == name for path in place.directories.values())
    ]


def write_places(work_dir: Path, places: Sequence[Place]) -> None:
    """Record the places, the latest first."""
    text = json.dumps(
        [{"version": each.version, "directories": dict(each.directories)} for each in places]
    )
    replace_file(work_dir / FILE, text.encode())
