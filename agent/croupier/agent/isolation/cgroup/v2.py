"""Groups of version 2: one for each run, with all controllers."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from croupier.agent.isolation.cgroup.bounds import PERIOD_US, Bounds, Measured
from croupier.agent.isolation.cgroup.directory import (
    PROCS,
    GroupDirectory,
    kill_listed,
    wait_until_empty,
)
from croupier.model.isolation import Feature, Features, Usage

CONTROLLERS: Final = ("memory", "pids", "cpu", "io")
_FEATURES: Final = {
    "memory.max": Feature.MEMORY,
    "pids.max": Feature.PIDS,
    "cpu.weight": Feature.CPU_WEIGHT,
    "cpu.max": Feature.CPU_QUOTA,
}
# Files that depend on the kernel: its version, swap, or the scheduler of disks.
_SWAP: Final = "memory.swap.max"
_AS_ONE: Final = "memory.oom.group"
_IO: Final = "io.weight"
_KILL: Final = "cgroup.kill"


class V2Groups:
    """The groups of all runs of an agent in version 2."""

    def __init__(self, directory: GroupDirectory, total: Bounds | None) -> None:
        """Use a directory whose groups have the controllers; `total` bounds all, unless None."""
        self._directory = directory
        files = (*_FEATURES, _SWAP, _AS_ONE, _IO, _KILL)
        self._has = {file for file in files if directory.has(file)}
        has = {feature for file, feature in _FEATURES.items() if file in self._has}
        if Feature.MEMORY in has:
            # The kernel counts time on cpus without a controller.
            has.add(Feature.USAGE)
        self.features: Features = frozenset(has)
        if total is not None:
            self._bind(".", total)

    def make(self, run: str, bounds: Bounds, *, is_fixed: bool = False) -> tuple[str, ...]:
        """Make the group of a run; it cannot be renamed, so none is used again."""
        del is_fixed
        self._directory.make(run)
        self._bind(run, bounds)
        if _AS_ONE in self._has:
            self._directory.write(run, _AS_ONE, 1)
        kill = (f"kill={self._directory.path}/{run}/{_KILL}",) if _KILL in self._has else ()
        return (*self.entry(run), *kill)

    def entry(self, run: str) -> tuple[str, ...]:
        """Return the option by which a process enters the group of a run."""
        return (f"group={self._directory.path}/{run}/{PROCS}",)

    def has(self, run: str) -> bool:
        """Return whether the run has a group."""
        return self._directory.exists(run)

    def measure(self, run: str) -> Measured | None:
        """Return what the run has used; None if it has no group."""
        group = self._directory
        if not self.has(run):
            return None
        events = group.numbers(run, "memory.events")
        killed = events.get("oom_kill", 0)
        refused = group.numbers(run, "pids.events").get("max", 0)
        read, written = _transferred(group.read(run, "io.stat") or "")
        # Before Linux 5.19 the kernel keeps no peak.
        peak = group.number(run, "memory.peak") or group.number(run, "memory.current")
        return Measured(
            Usage(
                group.numbers(run, "cpu.stat").get("usage_usec", 0) // 1000,
                peak,
                group.number(run, "pids.peak"),
                read,
                written,
            ),
            group.number(run, "memory.max") if killed else 0,
            killed,
            bool(events.get("oom", 0)),
            group.number(run, "pids.max") if refused else 0,
            refused,
        )

    def is_empty(self, run: str) -> bool:
        """Return whether no process is left in the group, or in one that its task has made."""
        events = self._directory.numbers(run, "cgroup.events")
        return not events.get("populated", 0)

    def kill(self, run: str) -> None:
        """Kill the processes of the run."""
        if _KILL not in self._has:
            with suppress(FileNotFoundError):
                self._directory.write(run, "pids.max", 0)
            kill_listed(lambda: self._directory.processes(run))
            return
        with suppress(FileNotFoundError):
            self._directory.write(run, _KILL, 1)
            wait_until_empty(lambda: not self.is_empty(run))

    def remove(self, run: str) -> None:
        """Remove the group of a run."""
        self._directory.remove(run)

    def names(self) -> set[str]:
        """Return the names of all runs with a group."""
        return set(self._directory.names())

    def close(self) -> None:
        """Close all descriptors, and remove the directory if it has no groups."""
        self._directory.close()

    def _bind(self, name: str, bounds: Bounds) -> None:
        write = self._directory.write
        if bounds.memory and Feature.MEMORY in self.features:
            write(name, "memory.max", bounds.memory)
            if _SWAP in self._has:
                # The limit of memory is that of memory and swap together.
                write(name, _SWAP, 0)
            if bounds.spared:
                write(name, "memory.low", bounds.spared)
        if Feature.CPU_WEIGHT in self.features:
            write(name, "cpu.weight", bounds.weight)
        if bounds.quota_us and Feature.CPU_QUOTA in self.features:
            write(name, "cpu.max", f"{bounds.quota_us} {PERIOD_US}")
        if bounds.pids and Feature.PIDS in self.features:
            write(name, "pids.max", bounds.pids)
        if _IO in self._has:
            write(name, _IO, bounds.weight)


def _transferred(text: str) -> tuple[int, int]:
    """Return the bytes that all disks have read and written, from `io.stat`."""
    read = written = 0
    for line in text.splitlines():
        for word in line.split()[1:]:
            key, _, value = word.partition("=")
            read += int(value) if key == "rbytes" else 0
            written += int(value) if key == "wbytes" else 0
    return read, written
