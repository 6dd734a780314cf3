"""Enforces disk limits: ends a task whose sandbox takes more than its limit.

The limit is that of the task, or `disk` of its resources, or the agent's default: a quarter of the
disk, if the operator sets none. Where the file system has project quotas on, the kernel refuses
what goes beyond it. The task is watched as well; `disk_watch` tells how far it gets beyond its
limit. What it takes is told with its end, unless it ended before it was measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from croupier.agent.core.ending import NO_ENDING, Ending, Exceeded
from croupier.agent.core.events import LimitExceeded
from croupier.agent.core.tasks import Key, LocalTask
from croupier.agent.isolation.disk_watch import MIB, DiskWatch, Room, Watched, mib, most_files
from croupier.agent.isolation.hidden_files import HiddenFiles
from croupier.agent.isolation.launch import Launch
from croupier.agent.isolation.limits import limits_of
from croupier.agent.isolation.project_quota import ProjectQuotas
from croupier.agent.isolation.uid_range import UidRange
from croupier.agent.sandbox import Sandboxes
from croupier.model.isolation import Feature, Features, Limits, Usage
from croupier.model.task import Reason, TaskInfo
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

# A sandbox with so little room below its quota is full.
FULL = 64 * 1024
# The part of the disk that is the limit of a task for which none is named.
DEFAULT_PART = 4
REMEDY = (
    "put the work dir on xfs, or on ext4 with the features project and quota, mounted with prjquota"
)


class DiskIsolator:
    """Ends tasks for their disk limits."""

    name = "disk"

    def __init__(
        self,
        watch: DiskWatch,
        defaults: Limits,
        quotas: ProjectQuotas | None = None,
        sandboxes: Sandboxes | None = None,
    ) -> None:
        """Use `defaults` for tasks that name no limit, and `quotas` of `sandboxes` if there are."""
        self._watch, self._defaults = watch, defaults
        self._quotas, self._sandboxes = quotas, sandboxes
        enforced = {Feature.DISK, Feature.DISK_QUOTA} if quotas else {Feature.DISK}
        self.features: Features = frozenset(enforced)

    def close(self) -> None:
        """Release what it holds open; quotas stay."""
        self._watch.close()
        if self._quotas is not None:
            self._quotas.close()

    @property
    def watch(self) -> DiskWatch:
        """The watch, whose `run` measures."""
        return self._watch

    def adopt(self, tasks: Iterable[LocalTask]) -> None:
        """Watch the live tasks of an earlier life of the agent."""
        for task in tasks:
            if task.is_live:
                self._add(task.run, task.key, task.info)

    def prepare(self, launch: Launch) -> Launch:
        """Limit the sandbox, and watch it from now on.

        Raises:
            OSError: if the kernel refuses the quota.
        """
        if limit := self._add(launch.run, launch.key, launch.info):
            with self._sandbox(launch.key) as sandbox:
                if sandbox is not None and self._quotas is not None:
                    self._quotas.limit(sandbox, limit, most_files(limit))
        return launch

    def join(self, launch: Launch) -> Launch:
        """Change nothing: the limit is that of the sandbox."""
        return launch

    def usage(self, run: str) -> Usage | None:
        """Return the size at the last measurement."""
        watched = self._watch.get(run)
        if watched is None or (watched.is_default and not watched.measured_at):
            return None
        return Usage(disk_bytes=watched.size)

    def is_empty(self, run: str) -> bool:
        """Return True: sandboxes tell nothing about processes."""
        del run
        return True

    def kill(self, run: str) -> None:
        """Do nothing."""

    def end(self, run: str) -> Ending:
        """Return the size at the end, and whether it was above the limit before."""
        watched = self._watch.get(run)
        if watched is not None and not watched.is_default:
            watched = self._watch.measure_last(run)
        elif watched is None or not watched.measured_at:
            return NO_ENDING
        assert watched is not None
        exceeded = watched.exceeded or self._full(watched)
        return Ending(Usage(disk_bytes=watched.size), exceeded)

    def forget(self, run: str) -> None:
        """Stop watching, and remove the quota. The sandbox may be gone already.

        A task that ended because the disk was low keeps only its output.
        """
        watched = self._watch.get(run)
        self._watch.remove(run)
        if watched is not None and self._quotas is not None:
            with suppress(OSError), self._sandbox(watched.key) as sandbox:
                if sandbox is not None:
                    self._quotas.release(sandbox)
        if watched is not None and watched.cause and self._sandboxes is not None:
            with suppress(OSError):
                self._sandboxes.empty(watched.key)

    def clean(self, known: Collection[str]) -> None:
        """Do nothing: sandboxes are removed by the janitor."""

    @contextmanager
    def _sandbox(self, key: Key) -> Iterator[int | None]:
        """Open a sandbox for the context; None without quotas."""
        if self._quotas is None or self._sandboxes is None:
            yield None
            return
        fd = self._sandboxes.open_to_list(key)
        try:
            yield fd
        finally:
            os.close(fd)

    def _full(self, watched: Watched) -> Exceeded | None:
        """Return the limit if the kernel has refused, or was about to refuse, further blocks."""
        with suppress(OSError), self._sandbox(watched.key) as sandbox:
            if sandbox is None or self._quotas is None:
                return None
            used = self._quotas.used(sandbox)
            if used + FULL >= watched.limit:
                watched.size = watched.peak = used
                message = f"its sandbox reached its limit of {mib(watched.limit)}"
                return Exceeded(Reason.DISK_LIMIT, message)
        return None

    def _add(self, run: str, key: Key, info: TaskInfo) -> int:
        """Watch a run; return its limit in bytes, 0 without one."""
        request = info.resources["disk"]
        limit = limits_of(info, self._defaults).disk * MIB // 1000
        if limit:
            is_default = not (info.limits.disk or request)
            self._watch.add(run, key, limit, request * MIB // 1000, is_default=is_default)
        return limit


def with_disk(defaults: Limits, root: Path) -> Limits:
    """Return the limits of tasks that name none, with a part of the disk of `root`.

    Raises:
        OSError: if its size cannot be read.
    """
    size = _room(root).size // DEFAULT_PART
    return defaults if defaults.disk else replace(defaults, disk=size * 1000 // MIB)


def disk_isolator(
    sandboxes: Sandboxes,
    defaults: Limits,
    tell: Callable[[LimitExceeded], None],
    uids: UidRange | None = None,
    shims: Callable[[], Mapping[int, str]] = dict,
) -> DiskIsolator:
    """Return the isolator of these sandboxes; `tell` receives the limits that are exceeded.

    `uids` each belong to one task, and `shims` returns the pids of shims with their runs.
    """
    root = sandboxes.root
    try:
        quotas: ProjectQuotas | None = ProjectQuotas(root)
    except OSError as error:
        _log.warning("no_disk_quotas", directory=str(root), reason=error.strerror, remedy=REMEDY)
        quotas = None
    hidden = HiddenFiles(uids)
    watch = DiskWatch(sandboxes.open_to_list, lambda: _room(root), tell, hidden, shims)
    return DiskIsolator(watch, defaults, quotas, sandboxes)


def _room(root: Path) -> Room:
    disk = os.statvfs(root)
    return Room(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)
