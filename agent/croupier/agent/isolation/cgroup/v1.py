"""Groups of version 1: one for each run in the hierarchy of each controller.

A process enters by the file `tasks`: `cgroup.procs` takes a lock of the whole machine, for which
it waits up to 14 ms. The version 2 hierarchy of a hybrid machine is not used, since it is entered
by `cgroup.procs` only: without `cgroup.kill`, the agent first forbids forks, and then kills.

Making and removing a group takes 0.15 ms, so the next runs use groups again.

Rule: a group is used again only if nothing of its run can be noticed in it. Its task was not able
to change it; it has no processes and no groups; the kernel has killed nothing in it; and it holds
little memory, of files that the kernel can drop. It has the same bounds for the next run. The peak
of memory and the time of cpus are set back. The peak of processes cannot be, so groups of pids are
never used again.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from croupier.agent.isolation.cgroup.bounds import MIB, Bounds, Measured
from croupier.agent.isolation.cgroup.directory import GroupDirectory, kill_listed
from croupier.model.isolation import Feature, Features, Usage

MOST: Final = 64
# Memory that may stay charged to a group: at most this, and this part of its limit.
_MOST_LEFT: Final = MIB
_PART_LEFT: Final = 16
CONTROLLERS: Final = ("memory", "pids", "cpu", "cpuacct")
_FEATURES: Final = {
    "memory.limit_in_bytes": Feature.MEMORY,
    "pids.max": Feature.PIDS,
    "cpu.shares": Feature.CPU_WEIGHT,
    "cpu.cfs_quota_us": Feature.CPU_QUOTA,
    "cpuacct.usage": Feature.USAGE,
}
_MEMORY: Final = "memory.limit_in_bytes"
_WITH_SWAP: Final = "memory.memsw.limit_in_bytes"
# A limit was met if the peak is below it by at most this part: some kernels keep memory.failcnt at
# 0, and each cpu may hold back some pages.
_NEAR: Final = 16


class SpareGroups:
    """The groups of ended runs in some hierarchies, each under the name of its last run."""

    def __init__(self, directories: Mapping[str, GroupDirectory]) -> None:
        """Use groups in `directories` again, which are given by controller."""
        self._all = tuple(dict.fromkeys(directories.values()))
        self._memory, self._accounting = directories.get("memory"), directories.get("cpuacct")
        self._by_bounds: dict[Bounds, list[str]] = {}
        self.names: dict[str, Bounds] = {}

    def take(self, run: str, bounds: Bounds) -> bool:
        """Give a run the groups of an earlier one with the same bounds; return whether it has."""
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
        """Keep the groups of a run that has ended; return False if they cannot be used again."""
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


class V1Groups:
    """The groups of all runs of an agent in version 1."""

    def __init__(self, directories: Mapping[str, GroupDirectory], total: Bounds | None) -> None:
        """Use directories by controller, maybe shared; `total` bounds all together, unless None."""
        self._memory, self._cpu = directories.get("memory"), directories.get("cpu")
        self._pids, self._accounting = directories.get("pids"), directories.get("cpuacct")
        self._all = tuple(dict.fromkeys(directories.values()))
        present = {
            file for file in (*_FEATURES, _WITH_SWAP) if any(each.has(file) for each in self._all)
        }
        self.features: Features = frozenset(
            feature for file, feature in _FEATURES.items() if file in present
        )
        self._has_swap = _WITH_SWAP in present
        kept = {name: each for name, each in directories.items() if each is not self._pids}
        self._spare = SpareGroups(kept)
        # Runs whose tasks cannot change their groups, and those of them without killed processes.
        self._fixed: dict[str, Bounds] = {}
        self._unhurt: set[str] = set()
        if total is not None:
            self._bind(".", total)

    def make(self, run: str, bounds: Bounds, *, is_fixed: bool = False) -> tuple[str, ...]:
        """Make the groups of a run, or use some of an earlier one again."""
        if not (is_fixed and self._spare.take(run, bounds)):
            for directory in self._all:
                directory.make(run)
            self._bind(run, bounds)
        elif self._pids is not None:
            self._pids.make(run)
            self._bind_pids(run, bounds)
        if is_fixed:
            self._fixed[run] = bounds
        return self.entry(run)

    def entry(self, run: str) -> tuple[str, ...]:
        """Return the options by which a process enters the groups of a run."""
        return tuple(f"group={directory.path}/{run}/tasks" for directory in self._all)

    def has(self, run: str) -> bool:
        """Return whether the run has a group."""
        is_spare = run in self._spare.names
        return not is_spare and any(directory.exists(run) for directory in self._all)

    def measure(self, run: str) -> Measured | None:
        """Return what the run has used; None if it has no group."""
        if not self.has(run):
            return None
        memory, pids, accounting = self._memory, self._pids, self._accounting
        events = memory.numbers(run, "memory.oom_control") if memory else {}
        killed = events.get("oom_kill", 0)
        if run in self._fixed and not killed:
            self._unhurt.add(run)
        else:
            self._unhurt.discard(run)
        limit = memory.number(run, _MEMORY) if memory and killed else 0
        peak = memory.number(run, "memory.max_usage_in_bytes") if memory else 0
        most = pids.number(run, "pids.peak") if pids else 0
        refused = self._refused(pids, run, most) if pids else 0
        return Measured(
            Usage(
                cpu_ms=accounting.number(run, "cpuacct.usage") // 1_000_000 if accounting else 0,
                memory_peak=peak,
                pids_peak=most,
            ),
            limit,
            killed,
            bool(limit) and peak >= limit - limit // _NEAR,
            pids.number(run, "pids.max") if pids and refused else 0,
            refused,
        )

    def is_empty(self, run: str) -> bool:
        """Return whether no process is left in the group of the run in the first hierarchy.

        Looking at each would take 0.1 ms. Only processes of the agent's user can be in others.
        """
        return not self._all[0].has_processes(run)

    def kill(self, run: str) -> None:
        """Forbid forks, and kill the processes of the run."""
        self._fixed.pop(run, None)
        if self._pids is not None:
            with suppress(FileNotFoundError):
                self._pids.write(run, "pids.max", 0)
        kill_listed(lambda: [pid for each in self._all for pid in each.processes(run)])

    def remove(self, run: str) -> None:
        """Remove the groups of a run, or keep some for a later one."""
        if run in self._spare.names:
            return
        bounds, is_unhurt = self._fixed.pop(run, None), run in self._unhurt
        self._unhurt.discard(run)
        if bounds is None or not is_unhurt or not self._spare.keep(run, bounds):
            for directory in self._all:
                directory.remove(run)
        elif self._pids is not None:
            self._pids.remove(run)

    def names(self) -> set[str]:
        """Return the names of all runs with a group."""
        found = {name for directory in self._all for name in directory.names()}
        return found - self._spare.names.keys()

    def close(self) -> None:
        """Close all descriptors, and remove spare groups, and directories without groups."""
        self._spare.clear()
        for directory in self._all:
            directory.close()

    def _bind(self, name: str, bounds: Bounds) -> None:
        if self._memory is not None and bounds.memory:
            self._bind_memory(self._memory, name, bounds)
        if self._cpu is not None:
            self._cpu.write(name, "cpu.shares", bounds.shares)
            if bounds.quota_us and Feature.CPU_QUOTA in self.features:
                _write_quota(self._cpu, name, bounds.quota_us)
        self._bind_pids(name, bounds)

    def _bind_pids(self, name: str, bounds: Bounds) -> None:
        if self._pids is not None and bounds.pids:
            self._pids.write(name, "pids.max", bounds.pids)

    def _refused(self, pids: GroupDirectory, run: str, most: int) -> int:
        """Return how many forks were refused: none if the peak is below the limit."""
        limit = self._fixed[run].pids if run in self._fixed else 1
        if most and (not limit or most < limit):
            return 0
        return pids.numbers(run, "pids.events").get("max", 0)

    def _bind_memory(self, memory: GroupDirectory, name: str, bounds: Bounds) -> None:
        with_swap = self._has_swap
        # The limit with swap may never be below the other one.
        files = (_MEMORY, _WITH_SWAP) if with_swap else (_MEMORY,)
        try:
            for file in files:
                memory.write(name, file, bounds.memory)
        except OSError as error:
            if error.errno != errno.EINVAL or not with_swap:
                raise
            # An earlier agent has set a lower one.
            for file in reversed(files):
                memory.write(name, file, bounds.memory)
        if bounds.spared:
            memory.write(name, "memory.soft_limit_in_bytes", bounds.spared)


def _write_quota(cpu: GroupDirectory, name: str, quota_us: int) -> None:
    try:
        cpu.write(name, "cpu.cfs_quota_us", quota_us)
    except OSError as error:
        # The agent's own group has a lower quota, which binds its tasks too.
        if error.errno != errno.EINVAL:
            raise
