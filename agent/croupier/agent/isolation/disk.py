"""Enforces disk limits: ends a task whose sandbox takes more than its limit.

The limit is that of the task, or `disk` of its resources, or the agent's default. Where the file
system has project quotas on, the kernel refuses what goes beyond it. The sandbox is watched as
well; `disk_watch` tells how far a task gets beyond its limit. The size of the sandbox is told with
the end of each task that has a limit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress

from croupier.agent.core.ending import NO_ENDING, Ending, Exceeded
from croupier.agent.core.events import LimitExceeded
from croupier.agent.core.tasks import Key, Task
from croupier.agent.isolation.disk_watch import MIB, DiskWatch, Watched
from croupier.agent.isolation.launch import Launch
from croupier.agent.isolation.limits import limits_of
from croupier.agent.isolation.project_quota import ProjectQuotas
from croupier.agent.sandbox import Sandboxes
from croupier.model.isolation import Feature, Features, Limits, Usage
from croupier.model.task import Reason, TaskInfo
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

# A sandbox with so little room below its quota is full.
FULL = 64 * 1024


class DiskIsolator:
    """Ends tasks for their disk limits."""

    name = "disk"
    features: Features = frozenset({Feature.DISK})

    def __init__(
        self,
        watch: DiskWatch,
        defaults: Limits,
        quotas: ProjectQuotas | None = None,
        open_sandbox: Callable[[Key], int] | None = None,
    ) -> None:
        """Use `defaults` for tasks that name no limit, and `quotas` if there are some."""
        self._watch, self._defaults = watch, defaults
        self._quotas, self._open = quotas, open_sandbox

    def close(self) -> None:
        """Release what it holds open; quotas stay."""
        self._watch.close()
        if self._quotas is not None:
            self._quotas.close()

    @property
    def watch(self) -> DiskWatch:
        """The watch, whose `run` measures."""
        return self._watch

    def adopt(self, tasks: Iterable[Task]) -> None:
        """Watch the live tasks of an earlier life of the agent."""
        for task in tasks:
            if task.is_live and (limit := self._limit(task.info)):
                self._watch.add(task.run, task.key, limit)

    def prepare(self, launch: Launch) -> Launch:
        """Limit the sandbox, and watch it from now on.

        Raises:
            OSError: if the kernel refuses the quota.
        """
        if limit := self._limit(launch.info):
            self._watch.add(launch.run, launch.key, limit)
            with self._sandbox(launch.key) as sandbox:
                if sandbox is not None and self._quotas is not None:
                    self._quotas.limit(sandbox, limit)
        return launch

    def join(self, launch: Launch) -> Launch:
        """Change nothing: the limit is that of the sandbox."""
        return launch

    def usage(self, run: str) -> Usage | None:
        """Return the size at the last measurement."""
        watched = self._watch.get(run)
        return None if watched is None else Usage(disk_bytes=watched.size)

    def is_empty(self, run: str) -> bool:
        """Return True: sandboxes tell nothing about processes."""
        del run
        return True

    def kill(self, run: str) -> None:
        """Do nothing."""

    def end(self, run: str) -> Ending:
        """Return the size at the end, and whether it was above the limit before."""
        watched = self._watch.measure_last(run)
        if watched is None:
            return NO_ENDING
        exceeded = watched.exceeded or self._full(watched)
        return Ending(Usage(disk_bytes=watched.size), exceeded)

    def forget(self, run: str) -> None:
        """Stop watching, and remove the quota. The sandbox may be gone already."""
        watched = self._watch.get(run)
        self._watch.remove(run)
        if watched is not None and self._quotas is not None:
            with suppress(OSError), self._sandbox(watched.key) as sandbox:
                if sandbox is not None:
                    self._quotas.release(sandbox)

    def clean(self, known: Collection[str]) -> None:
        """Do nothing: sandboxes are removed by the janitor."""

    @contextmanager
    def _sandbox(self, key: Key) -> Iterator[int | None]:
        """Open a sandbox for the context; None without quotas."""
        if self._quotas is None or self._open is None:
            yield None
            return
        fd = self._open(key)
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
                message = f"its sandbox reached its limit of {watched.limit / MIB:.1f} MiB"
                return Exceeded(Reason.DISK_LIMIT, message)
        return None

    def _limit(self, info: TaskInfo) -> int:
        """Return the limit of a task in bytes; 0 without one."""
        return limits_of(info, self._defaults).disk * MIB // 1000


def disk_isolator(
    sandboxes: Sandboxes, defaults: Limits, tell: Callable[[LimitExceeded], None]
) -> DiskIsolator:
    """Return the isolator of these sandboxes; `tell` receives the limits that are exceeded."""

    def free() -> int:
        disk = os.statvfs(sandboxes.root)
        return disk.f_bavail * disk.f_frsize

    opened = sandboxes.open_to_list
    try:
        quotas: ProjectQuotas | None = ProjectQuotas(sandboxes.root)
    except OSError as error:
        _log.info("no_disk_quotas", directory=str(sandboxes.root), reason=error.strerror)
        quotas = None
    return DiskIsolator(DiskWatch(opened, free, tell), defaults, quotas, opened)
