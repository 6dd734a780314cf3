"""A place for groups in version 2, where a group with groups may have no processes.

The rules of version 2 are those of systemd: a service may make groups in its own group if the unit
says `Delegate=yes`. The agent then moves into a group in it. With `DelegateSubgroup=croupier-agent`
systemd starts the agent there, which an agent needs that is started again while tasks run.
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
_MARKS: Final = ("trusted.delegate", "user.delegate")
_UNITS: Final = (".service", ".scope", ".slice")
_HOW: Final = "under systemd, give the unit Delegate=yes and DelegateSubgroup=croupier-agent"


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
    has = set((base / "cgroup.controllers").read_text().split())
    if not has.intersection(controllers):
        raise Unavailable(f"{base} has no controller of {', '.join(controllers)}")
    if not os.access(base / "cgroup.subtree_control", os.W_OK) or not os.access(base, os.W_OK):
        raise Unavailable(f"{base} may not be written to: {_HOW}")
    # Only the root of the whole machine has no type, and may have processes beside groups.
    if base == own and (own / "cgroup.type").exists():
        _check_delegated(own, get_mark)
        _move_into_leaf(own)
    for controller in controllers:
        if controller in has:
            # A controller that is refused is missing among the files of groups.
            with suppress(OSError):
                (base / "cgroup.subtree_control").write_text(f"+{controller}")
    return base


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
    """Move this process, which must be alone, from its group into one in it."""
    others = len(set((own / PROCS).read_text().split()) - {str(os.getpid())})
    if others:
        raise Unavailable(
            f"{others} other processes are in {own}, so it cannot have groups with controllers;"
            f" {_HOW}"
        )
    leaf = own / LEAF
    leaf.mkdir(exist_ok=True)
    (leaf / PROCS).write_text(str(os.getpid()))
