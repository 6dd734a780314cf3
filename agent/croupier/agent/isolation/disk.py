"""Enforces disk limits: ends a task whose sandbox takes more than its limit.

The limit is that of the task, or `disk` of its resources, or the agent's default. The sandbox is
watched; `disk_watch` tells how far a task gets beyond its limit. The size of the sandbox is told
with the end of each task that has a limit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable

from croupier.agent.core.ending import NO_ENDING, Ending
from croupier.agent.core.events import LimitExceeded
from croupier.agent.core.tasks import Task
from croupier.agent.isolation.disk_watch import MIB, DiskWatch
from croupier.agent.isolation.launch import Launch
from croupier.agent.isolation.limits import limits_of
from croupier.agent.sandbox import Sandboxes
from croupier.model.isolation import Feature, Features, Limits, Usage
from croupier.model.task import TaskInfo


class DiskIsolator:
    """Ends tasks for their disk limits."""

    name = "disk"
    features: Features = frozenset({Feature.DISK})

    def __init__(self, watch: DiskWatch, defaults: Limits) -> None:
        """Use `defaults` for tasks that name no limit."""
        self._watch, self._defaults = watch, defaults

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
        """Watch the sandbox from now on."""
        if limit := self._limit(launch.info):
            self._watch.add(launch.run, launch.key, limit)
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
        return Ending(Usage(disk_bytes=watched.size), watched.exceeded)

    def forget(self, run: str) -> None:
        """Stop watching."""
        self._watch.remove(run)

    def clean(self, known: Collection[str]) -> None:
        """Do nothing: sandboxes are removed by the janitor."""

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

    return DiskIsolator(DiskWatch(sandboxes.open_to_list, free, tell), defaults)
