"""Probes the machine for resources that the operator does not name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from croupier.model.errors import Unavailable
from croupier.model.resources import Resources

GIB = 1024**3
PORTS = (31000, 32000)

# Memory and disk left to the system; a small machine leaves half.
SPARED_MEM_BYTES = GIB
SPARED_DISK_BYTES = 5 * GIB


@dataclass(frozen=True, slots=True)
class GivenResources:
    """The resources that the operator gives the agent.

    Attributes:
        names: the named resources, including those with an amount of 0. All others are probed.
    """

    amount: Resources
    names: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> GivenResources:
        """Read `cpus:4;mem:8GB;ports:[31000-32000];gpus:0`.

        Raises InvalidRequest if the text has another form.
        """
        amount = Resources.parse(text)
        names = (part.partition(":")[0].strip() for part in text.split(";"))
        return cls(amount, frozenset(filter(None, names)))

    def __str__(self) -> str:
        return str(self.amount) or "what the machine has"


def probe(given: GivenResources, work_dir: Path) -> Resources:
    """Return the agent's resources: the `given` ones, and the machine's for names not given.

    Cpus are those that this process may run on. 1 GiB of memory and 5 GiB of the work dir's disk
    are left to the system, or half if there is less than twice that. Raises Unavailable if the size
    of the disk cannot be read.
    """
    scalars = {
        "cpus": len(os.sched_getaffinity(0)) * 1000,
        "mem": _milli_mib(spared(_memory_bytes(), SPARED_MEM_BYTES)),
        "disk": _milli_mib(spared(_disk_bytes(work_dir), SPARED_DISK_BYTES)),
    }
    found = Resources(
        {name: milli for name, milli in scalars.items() if name not in given.names},
        {} if "ports" in given.names else {"ports": (PORTS,)},
    )
    return given.amount + found


def spared(total: int, spare: int) -> int:
    """Return `total` less the part that is left to the system."""
    return total - spare if total >= 2 * spare else total // 2


def read_boot_id() -> str:
    """Return the id of the machine's current boot; empty if the kernel has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _disk_bytes(path: Path) -> int:
    try:
        disk = os.statvfs(path)
    except OSError as error:
        raise Unavailable(f"cannot read the disk size of {path}: {error.strerror}") from error
    return disk.f_blocks * disk.f_frsize


def _milli_mib(size: int) -> int:
    return size // 1024**2 * 1000
