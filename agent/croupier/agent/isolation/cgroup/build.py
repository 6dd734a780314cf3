"""Finds the place of an agent's groups, and makes or removes what holds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from croupier.agent.isolation.cgroup import v1, v2
from croupier.agent.isolation.cgroup.bounds import Bounds, bounds_of_all
from croupier.agent.isolation.cgroup.delegation import SHIMS, delegated_base, separate_base
from croupier.agent.isolation.cgroup.directory import PROCS, GroupDirectory, name_for
from croupier.agent.isolation.cgroup.find import OwnGroups, find_groups
from croupier.agent.isolation.cgroup.groups import Groups
from croupier.agent.isolation.cgroup.isolator import CgroupIsolator
from croupier.agent.isolation.cgroup.killing import kill_listed
from croupier.agent.isolation.cgroup.places import (
    Place,
    forget_places,
    read_places,
    write_places,
)
from croupier.agent.isolation.isolator import Isolator
from croupier.agent.isolation.layers import Layers
from croupier.agent.isolation.setting import Setting
from croupier.model.errors import Unavailable
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")
_ALL = "all"


def build_cgroup(setting: Setting) -> Iterator[Isolator]:
    """Yield the isolator by control groups.

    Raises:
        Unavailable: if no groups can be made, with the reason.
        OSError: if the system refuses.
    """
    name, total, flags = name_for(setting.work_dir), bounds_of_all(setting.total), setting.flags
    place = place_for(own_groups(flags.cgroup_parent), name)
    recorded = read_places(setting.work_dir, name)
    earlier = [each for each in recorded if each != place]
    opened = [groups for each in earlier if (groups := _reopened(each)) is not None]
    if place not in recorded or len(opened) < len(earlier):
        try:
            write_places(setting.work_dir, [place, *earlier])
        except OSError as error:
            # The next agent then finds these groups only if it is started from the same group.
            _log.warning("isolation_not_recorded", error=str(error))
    isolator = CgroupIsolator(
        lambda: open_groups(place, total),
        flags.default_limits,
        has_quota=flags.cpu_quota == "on",
        earlier=opened,
    )
    if place.version == 2 and flags.cgroup_parent:
        isolator.shims = Path(place.directories[_ALL]).with_name(SHIMS) / PROCS
    setting.closing.callback(isolator.close)
    yield isolator


def shims_of(layers: Layers) -> Path | None:
    """Return the file by which shims enter a group of their own, if there is one."""
    cgroup = (each for each in layers.isolators if isinstance(each, CgroupIsolator))
    return next((each.shims for each in cgroup), None)


def own_groups(parent: str = "") -> OwnGroups:
    """Return the groups of this process, and the group `parent` of version 2.

    Raises:
        OSError: if the kernel does not tell.
    """
    process = Path("/proc/self")
    return find_groups(
        (process / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape"),
        (process / "cgroup").read_text(encoding="utf-8", errors="surrogateescape"),
        parent,
    )


def place_for(own: OwnGroups, name: str) -> Place:
    """Return where the groups of an agent with these own groups are; makes none.

    In version 2 this may move the agent within its own group.

    Raises:
        Unavailable: if there is no place, with the reasons.
        OSError: if the system refuses.
    """
    wanted = [own.v1[each] for each in v1.CONTROLLERS if each in own.v1]
    if wanted:
        directories = {
            each: f"{own.v1[each].directory}/{name}"
            for each in v1.CONTROLLERS
            if each in own.v1 and not own.v1[each].problem
        }
        if not directories:
            raise Unavailable("; ".join(dict.fromkeys(group.problem for group in wanted)))
        return Place(1, directories)
    if own.v2 is None:
        raise Unavailable("no control groups are mounted")
    found = own.parent or own.v2
    if found.problem:
        raise Unavailable(found.problem)
    choose = delegated_base if own.parent is None else separate_base
    base = choose(Path(found.directory), v2.CONTROLLERS)
    return Place(2, {_ALL: f"{base}/{name}"})


def open_groups(place: Place, total: Bounds | None) -> Groups:
    """Open the groups in a place, and make what holds them; None: only if it exists.

    Raises:
        Unavailable: if no controller can be used, with the reasons.
        OSError: if the system refuses.
    """
    opened: dict[str, GroupDirectory] = {}
    found: dict[str, GroupDirectory] = {}
    reasons: list[str] = []
    for controller, path in place.directories.items():
        try:
            if path not in opened:
                opened[path] = GroupDirectory(path, create=total is not None)
            found[controller] = opened[path]
        except (Unavailable, OSError) as error:
            reasons.append(str(error))
    if not found:
        raise Unavailable("; ".join(dict.fromkeys(reasons)))
    if reasons and total is not None:
        _log.warning("isolation_reduced", missing={"cgroup": "; ".join(reasons)})
    if place.version == 1:
        return v1.V1Groups(found, total)
    if total is not None:
        for controller in v2.CONTROLLERS:
            # A controller that is refused is missing among the files of groups.
            with suppress(OSError):
                found[_ALL].write(".", "cgroup.subtree_control", f"+{controller}")
    return v2.V2Groups(found[_ALL], total)


def remove_groups(work_dir: Path) -> None:
    """End what is left in the groups of an agent that has ended, and remove all of its groups.

    Raises:
        OSError: if something is left.
    """
    for place in read_places(work_dir, name_for(work_dir)):
        for path in dict.fromkeys(place.directories.values()):
            try:
                directory = GroupDirectory(path, create=False)
            except (FileNotFoundError, Unavailable):
                continue
            try:
                for run in directory.names():
                    kill_listed(partial(directory.processes, run))
                    directory.remove(run)
            finally:
                directory.close()
    forget_places(work_dir)


def _reopened(place: Place) -> Groups | None:
    """Return the groups in a place of an earlier agent; None if there are none."""
    with suppress(Unavailable, OSError):
        return open_groups(place, None)
    return None
