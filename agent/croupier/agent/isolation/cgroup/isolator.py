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
from pathlib import Path
from typing import Final

from croupier.agent.core.ending import NO_ENDING, Ending
from croupier.agent.isolation.cgroup.bounds import bounds_of, ending_of
from croupier.agent.isolation.cgroup.directory import GONE
from croupier.agent.isolation.cgroup.groups import Groups
from croupier.agent.isolation.launch import Launch
from croupier.agent.isolation.limits import limits_of
from croupier.model.isolation import Feature, Features, Limits, Usage

# The shim's option for a limit of processes by user.
_PROCESSES: Final = f"limit={resource.RLIMIT_NPROC}:"


class CgroupIsolator:
    """The isolator by control groups.

    Attributes:
        features: of the controllers that the machine has.
        shims: the file by which shims enter a group of their own; None: they stay with the agent.
    """

    name = "cgroup"

    def __init__(
        self,
        open_groups: Callable[[], Groups],
        defaults: Limits,
        *,
        has_quota: bool = False,
        earlier: Sequence[Groups] = (),
    ) -> None:
        """Use groups that `open_groups` opens, now and whenever another has removed them.

        Args:
            open_groups: raises Unavailable or OSError if there can be none.
            defaults: limits of tasks that name none.
            has_quota: whether each task is held to the cpus of its resources.
            earlier: groups of earlier agents in other places.
        """
        self._open, self._groups = open_groups, open_groups()
        self._earlier = tuple(earlier)
        self._defaults, self._has_quota = defaults, has_quota
        self.features: Features = self._groups.features
        self.shims: Path | None = None
        # Their last process is about to end.
        self._left: deque[str] = deque()

    def prepare(self, launch: Launch) -> Launch:
        """Make the group of the run, with its bounds; the shim's child enters it."""
        limits = limits_of(launch.info, self._defaults, has_quota=self._has_quota)
        bounds = bounds_of(launch.info.resources, limits)
        is_fixed = _is_unprivileged(launch)
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
        return launch.with_options((*kept, *options))

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
        """Kill what runs of earlier agents have left, and remove their groups.

        Raises:
            OSError: if a process does not end, or a group cannot be removed.
        """
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
        """Return the groups with that of a run."""
        if not self._earlier or self._groups.has(run):
            return self._groups
        return next((each for each in self._earlier if each.has(run)), self._groups)

    def _remove(self, run: str) -> None:
        try:
            self._of(run).remove(run)
        except OSError:
            self._left.append(run)


def _is_unprivileged(launch: Launch) -> bool:
    """Return whether no process of the task can ever write to files of the agent's user."""
    user = launch.user
    is_other = user is not None and user.uid not in (0, os.geteuid())
    return is_other and "no-new-privs" in launch.options
