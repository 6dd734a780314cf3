"""Bounds and usage of a task's group, in the kernel's units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from croupier.agent.core.events import Ending, Exceeded
from croupier.model.isolation import Limits, Usage
from croupier.model.resources import Resources
from croupier.model.task import Reason

MIB: Final = 1024**2
# The period of cpu quotas, the kernel's default; and the quotas that it takes: up to 2^44, which is
# more than any machine has.
PERIOD_US: Final = 100_000
_QUOTA_RANGE: Final = (1_000, 2**43)
# Weights of one cpu; and the kernel's bounds.
_SHARES: Final = 1024
_SHARES_RANGE: Final = (2, 262_144)
_WEIGHT: Final = 100
_WEIGHT_RANGE: Final = (1, 10_000)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a group; 0 for none.

    Attributes:
        memory: bytes, swap included.
        spared: bytes of its memory that are reclaimed only after that of groups above theirs.
        cpus: thousandths; its part of the cpus if they are short.
        quota_us: time of all cpus together in each `PERIOD_US`.
        pids: processes and threads.
    """

    memory: int = 0
    spared: int = 0
    cpus: int = 0
    quota_us: int = 0
    pids: int = 0

    @property
    def shares(self) -> int:
        """The weight of its cpus in version 1."""
        return _within(self.cpus * _SHARES // 1000, _SHARES_RANGE)

    @property
    def weight(self) -> int:
        """The weight of its cpus, and of its disk accesses, in version 2."""
        return _within(self.cpus * _WEIGHT // 1000, _WEIGHT_RANGE)


@dataclass(frozen=True, slots=True)
class Measured:
    """The usage of a group, as the kernel reports it.

    Attributes:
        memory_limit: bytes; 0 if there is none.
        killed: processes that were killed because memory was short.
        is_own_limit: whether the group has met its own memory limit.
        pids_limit: 0 if there is none.
        refused: forks that failed because of `pids_limit`.
    """

    usage: Usage
    memory_limit: int = 0
    killed: int = 0
    is_own_limit: bool = False
    pids_limit: int = 0
    refused: int = 0


def bounds_of(resources: Resources, limits: Limits) -> Bounds:
    """Return the bounds of a task with these resources and limits."""
    accounted = resources["mem"]
    return Bounds(
        memory=in_bytes(limits.mem),
        spared=in_bytes(accounted) if limits.mem > accounted else 0,
        cpus=resources["cpus"],
        quota_us=_within(limits.cpus * PERIOD_US // 1000, _QUOTA_RANGE) if limits.cpus else 0,
        pids=limits.pids,
    )


def bounds_of_all(total: Resources) -> Bounds:
    """Return the bounds of all tasks of an agent together."""
    return Bounds(memory=in_bytes(total["mem"]), cpus=total["cpus"])


def ending_of(measured: Measured) -> Ending:
    """Return what a measurement says of a run that has ended."""
    exceeded = None
    if measured.killed:
        exceeded = Exceeded(Reason.MEMORY_LIMIT, _killed_message(measured))
    notes: tuple[str, ...] = ()
    if measured.refused:
        times = "once" if measured.refused == 1 else f"{measured.refused} times"
        notes = (f"pids limit of {measured.pids_limit} was met {times}",)
    return Ending(measured.usage, exceeded, notes)


def in_bytes(thousandths: int) -> int:
    """Return thousandths of a MiB in bytes."""
    return thousandths * MIB // 1000


def _killed_message(measured: Measured) -> str:
    peak = mib(measured.usage.memory_peak)
    if measured.memory_limit and measured.is_own_limit:
        return f"memory limit of {mib(measured.memory_limit)} exceeded; peak {peak}"
    own = f"its own limit is {mib(measured.memory_limit)}; " if measured.memory_limit else ""
    return f"killed because the memory of all tasks or of the machine was short; {own}peak {peak}"


def mib(size: int) -> str:
    """Return a number of bytes for people, with up to one decimal."""
    return f"{size / MIB:.1f}".removesuffix(".0") + " MiB"


def _within(value: int, bounds: tuple[int, int]) -> int:
    return min(max(value, bounds[0]), bounds[1])
