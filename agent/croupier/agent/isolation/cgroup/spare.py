"""Groups of version 1 that the next runs use again: making and removing one takes 0.15 ms.

Rule: a group is used again only if nothing of its run can be noticed in it. Its task was not able
to change it; it has no processes and no groups; the kernel has killed nothing in it; and it holds
little memory, of files that the kernel can drop. It has the same bounds for the next run. The peak
of memory and the time of cpus are set back. The peak of processes cannot be, so groups of pids are
never used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from croupier.agent.isolation.cgroup.bounds import MIB, Bounds
from croupier.agent.isolation.cgroup.directory import GroupDirectory

MOST: Final = 64
# Memory that may stay charged to a group: at most this, and this part of its limit.
_MOST_LEFT: Final = MIB
_PART_LEFT: Final = 16


class SpareGroups:
    """The groups of ended runs in some hierarchies, each under the name of its last run."""

    def __init__(
        self,
        directories: Sequence[GroupDirectory],
        memory: GroupDirectory | None,
        accounting: GroupDirectory | None,
    ) -> None:
        """Use groups in `directories` again; the other two are among them, if there are some."""
        self._all, self._memory, self._accounting = tuple(directories), memory, accounting
        self._by_bounds: dict[Bounds, list[str]] = {}
        self.names: dict[str, Bounds] = {}

    def take(self, run: str, bounds: Bounds) -> bool:
        """Give the groups of an earlier run with the same bounds to a run; return whether it has.

        Raises:
            OSError: if the system refuses.
        """
        names = self._by_bounds.get(bounds)
        if not names:
            return False
        spare = names.pop()
        del self.names[spare]
        try:
            for directory in self._all:
                directory.rename(spare, run)
            if self._memory is not None:
                self._memory.write(run, "memory.max_usage_in_bytes", 0)
            if self._accounting is not None:
                self._accounting.write(run, "cpuacct.usage", 0)
        except OSError:
            for directory in self._all:
                directory.remove(spare)
                directory.remove(run)
            return False
        return True

    def keep(self, run: str, bounds: Bounds) -> bool:
        """Keep the groups of a run that has ended; return False if they cannot be used again.

        Raises:
            OSError: if the system refuses.
        """
        if not self._all or self._all[0].has_processes(run):
            return False
        if self._memory is not None:
            most = min(_MOST_LEFT, bounds.memory // _PART_LEFT) if bounds.memory else _MOST_LEFT
            if self._memory.number(run, "memory.usage_in_bytes") > most:
                return False
        if len(self.names) >= MOST:
            self._remove(next(iter(self.names)))
        self._by_bounds.setdefault(bounds, []).append(run)
        self.names[run] = bounds
        return True

    def clear(self) -> None:
        """Remove all spare groups."""
        for name in list(self.names):
            with suppress(OSError):
                self._remove(name)

    def _remove(self, name: str) -> None:
        bounds = self.names.pop(name)
        names = self._by_bounds[bounds]
        names.remove(name)
        if not names:
            del self._by_bounds[bounds]
        for directory in self._all:
            directory.remove(name)
