"""The interface to groups of either version."""

from __future__ import annotations

from typing import Protocol

from croupier.agent.isolation.cgroup.bounds import Bounds, Measured
from croupier.model.isolation import Features


class Groups(Protocol):
    """The groups of all runs of an agent. Methods raise OSError if the system refuses."""

    @property
    def features(self) -> Features:
        """What they enforce and measure."""

    def make(self, run: str, bounds: Bounds, *, is_fixed: bool = False) -> tuple[str, ...]:
        """Make a group with bounds; return the options for the shim. O(1).

        `is_fixed`: the task cannot change the group, so that a later run may use it again.
        """

    def entry(self, run: str) -> tuple[str, ...]:
        """Return the options for the shim by which a process enters the group of a run."""

    def has(self, run: str) -> bool:
        """Return whether the run has a group."""

    def measure(self, run: str) -> Measured | None:
        """Return what the run has used; None if it has no group."""

    def is_empty(self, run: str) -> bool:
        """Return whether no process is left in the group."""

    def kill(self, run: str) -> None:
        """Kill the processes in the group, and wait for their end, 10 s at most."""

    def remove(self, run: str) -> None:
        """Remove the group, if it exists; it must be empty."""

    def names(self) -> set[str]:
        """Return the names of all runs with a group. O(groups)."""

    def close(self) -> None:
        """Close all descriptors, and remove what holds the groups if there are none."""
