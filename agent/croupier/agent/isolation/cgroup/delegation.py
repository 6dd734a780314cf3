"""A place for groups in version 2, where a group with groups may have no processes.

The rules of version 2 are those of systemd: a service may make groups in its own group if the unit
says `Delegate=yes`. Tasks and their shims are best in the group of another unit, which the agent is
told of (`--cgroup-parent`): then the agent has its own group for itself, and can be started again
while tasks run. Otherwise the agent moves into a group in its own. In a container it takes all
processes of the container along.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from croupier.agent.isolation.cgroup.directory import PROCS
from croupier.model.errors import Unavailable

# The group of the agent itself, and of its shims.
LEAF: Final = "croupier-agent"
# The group of shims, below a parent that is not the agent's own group.
SHIMS: Final = "croupier-shims"
_MARKS: Final = ("trusted.delegate", "user.delegate")
_UNITS: Final = (".service", ".scope", ".slice")
_HOW: Final = "under systemd, use croupier-tasks.service and --cgroup-parent, or Delegate=yes"


def delegated_base(
    own: Path,
    controllers: Collection[str],
    get_mark: Callable[[str, str], bytes] = os.getxattr,
) -> Path:
    """Return the group in which the agent may make groups; this may move the agent within it.

    Args:
        own: the directory of the agent's own group.
        controllers: enabled in the returned group as far as it has them.
        get_mark: reads an extended attribute.

    Raises:
        Unavailable: if the group is not the agent's to divide, with the reason.
        OSError: if the system refuses.
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
    parent: Path,
    controllers: Collection[str],
    get_mark: Callable[[str, str], bytes] = os.getxattr,
) -> Path:
    """Return a group that was delegated for tasks, apart from that of the agent; makes SHIMS in it.

    Raises:
        Unavailable: if there is none, or it is not the agent's to divide, with the reason.
        OSError: if the system refuses.
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
