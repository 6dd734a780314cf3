"""The level `cgroup`: the kernel enforces what was accounted for each task.

Enforced by a group for each run, which all processes of the task are in and cannot leave, unless
they run as the agent's user:

- memory: the limit of the task, or else its `mem`, swap included. If it needs more, the kernel
  kills processes of the task: one in version 1, all in version 2.
- memory of all tasks together: the agent's `mem`, so that limits above what was accounted cannot
  take the memory of the agent or the machine.
- cpus: a weight by its `cpus`, which counts while cpus are short; with a limit, or `--cpu-quota`,
  a quota as well.
- pids: processes and threads.
- disks (version 2 with a scheduler that has weights): a weight by its `cpus`.

It also measures the usage of all processes of a task, and finds and kills those that are left.
"""

from __future__ import annotations

import os
import resource
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from croupier.agent.core.events import NO_ENDING, Ending
from croupier.agent.isolation.cgroup import v1, v2
from croupier.agent.isolation.cgroup.bounds import Bounds, bounds_of, bounds_of_all, ending_of
from croupier.agent.isolation.cgroup.directory import (
    GONE,
    PROCS,
    GroupDirectory,
    kill_listed,
    name_for,
)
from croupier.agent.isolation.cgroup.places import (
    FILE,
    SHIMS,
    OwnGroups,
    Place,
    delegated_base,
    find_groups,
    read_places,
    separate_base,
    write_places,
)
from croupier.agent.isolation.isolator import Isolator, Launch, Layers, Setting, limits_of
from croupier.model.errors import Unavailable
from croupier.model.isolation import Feature, Limits, Usage
from croupier.process.logging import get_logger

# The shim's option for a limit of processes by user.
_PROCESSES: Final = f"limit={resource.RLIMIT_NPROC}:"
_log = get_logger("croupier.agent")
_ALL = "all"

Groups = v1.V1Groups | v2.V2Groups


class CgroupIsolator(Isolator):
    """Isolates by control groups; shims enter a group of their own by the file `shims`, if any."""

    name = "cgroup"

    def __init__(
        self,
        open_groups: Callable[[], Groups],
        defaults: Limits,
        *,
        has_quota: bool = False,
        earlier: Sequence[Groups] = (),
    ) -> None:
        """Use groups of `open_groups`, which is called again when they were removed.

        It raises Unavailable or OSError if there can be none. With `has_quota`, each task is held
        to the cpus of its resources. `earlier` groups are those of earlier agents, elsewhere.
        """
        self._open, self._groups = open_groups, open_groups()
        self._earlier = tuple(earlier)
        self._defaults, self._has_quota = defaults, has_quota
        self.features = self._groups.features
        self.shims: Path | None = None
        # Their last process is about to end.
        self._left: deque[str] = deque()

    def prepare(self, launch: Launch) -> Launch:
        """Make the group of the run, with its bounds; the shim's child enters it."""
        limits = limits_of(launch.info, self._defaults, has_quota=self._has_quota)
        bounds = bounds_of(launch.info.resources, limits)
        user = launch.user
        is_other = user is not None and user.uid not in (0, os.geteuid())
        # Then no process of the task can ever write to files of the agent's user.
        is_fixed = is_other and "no-new-privs" in launch.options
        try:
            options = self._groups.make(launch.run, bounds, is_fixed=is_fixed)
        except OSError as error:
            if error.errno not in GONE:
                raise
            self._groups.close()
            self._groups = self._open()
            options = self._groups.make(launch.run, bounds, is_fixed=is_fixed)
        return self._entered(launch, options)

    def join(self, launch: Launch) -> Launch:
        """Enter the group of the run; all of it is bounded and measured together."""
        return self._entered(launch, self._of(launch.run).entry(launch.run))

    def _entered(self, launch: Launch, options: tuple[str, ...]) -> Launch:
        kept = launch.options
        if Feature.PIDS in self.features:
            # A limit by user would be met first, and could not be told.
            kept = tuple(each for each in kept if not each.startswith(_PROCESSES))
        return replace(launch, options=(*kept, *options))

    def usage(self, run: str) -> Usage | None:
        """Return what a run has used until now; None if it has no group."""
        measured = self._of(run).measure(run)
        return None if measured is None else measured.usage

    def is_empty(self, run: str) -> bool:
        """Return whether no process is left in the group of a run."""
        return self._of(run).is_empty(run)

    def kill(self, run: str) -> None:
        """Kill what is left in the group of a run, and wait for its end, 10 s at most."""
        self._of(run).kill(run)

    def end(self, run: str) -> Ending:
        """Return the usage of a run that has ended, and the limits that it has met."""
        measured = self._of(run).measure(run)
        return NO_ENDING if measured is None else ending_of(measured)

    def forget(self, run: str) -> None:
        """Remove the group of a run; one with a process that is about to end, a little later."""
        if self._left:
            self._remove(self._left.popleft())
        self._remove(run)

    def clean(self, known: Collection[str]) -> None:
        """Kill what runs of earlier agents have left, and remove their groups; raises OSError."""
        errors: list[OSError] = []
        every = (self._groups, *self._earlier)
        for run in sorted(set().union(*(each.names() for each in every)).difference(known)):
            try:
                self._of(run).kill(run)
                self._of(run).remove(run)
            except OSError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Release what the agent holds; groups of tasks stay."""
        for groups in (self._groups, *self._earlier):
            groups.close()

    def _of(self, run: str) -> Groups:
        if not self._earlier or self._groups.has(run):
            return self._groups
        return next((each for each in self._earlier if each.has(run)), self._groups)

    def _remove(self, run: str) -> None:
        try:
            self._of(run).remove(run)
        except OSError:
            self._left.append(run)


def build_cgroup(setting: Setting) -> CgroupIsolator:
    """Return the isolator; raises Unavailable, with the reason, if no groups can be made."""
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
    return isolator


def shims_of(layers: Layers) -> Path | None:
    """Return the file by which shims enter a group of their own, if there is one."""
    cgroup = (each for each in layers.isolators if isinstance(each, CgroupIsolator))
    return next((each.shims for each in cgroup), None)


def own_groups(parent: str = "") -> OwnGroups:
    """Return the groups of this process, and the group `parent` of version 2."""
    process = Path("/proc/self")
    return find_groups(
        (process / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape"),
        (process / "cgroup").read_text(encoding="utf-8", errors="surrogateescape"),
        parent,
    )


def place_for(own: OwnGroups, name: str) -> Place:
    """Return where the groups of an agent with these own groups are; makes none.

    In version 2 this may move the agent within its own group. Raises Unavailable if there is no
    place, with the reasons.
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
    """Open the groups in a place, and make it unless `total` is None; raises Unavailable."""
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
    """Kill the processes left in the groups of an agent that has ended, and remove the groups."""
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
    (work_dir / FILE).unlink(missing_ok=True)


def _reopened(place: Place) -> Groups | None:
    """Return the groups in a place of an earlier agent; None if there are none."""
    with suppress(Unavailable, OSError):
        return open_groups(place, None)
    return None
