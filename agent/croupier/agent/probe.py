"""What the machine has, for resources that the operator does not name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from croupier.model.errors import Unavailable
from croupier.model.resources import Resources

GIB = 1024**3
PORTS = (31000, 32000)

# For the system itself; a small machine keeps half.
SPARED_MEM_BYTES = GIB
SPARED_DISK_BYTES = 5 * GIB


@dataclass(frozen=True, slots=True)
class GivenResources:
    """What the operator says the agent has.

    Attributes:
        names: the resources that were named, even if with an amount of nothing; all
            others are probed for.
    """

    amount: Resources
    names: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> GivenResources:
        """Read `cpus:4;mem:8GB;ports:[31000-32000];gpus:0`.

        Raises:
            InvalidRequest: if it is not that.
        """
        amount = Resources.parse(text)
        names = (part.partition(":")[0].strip() for part in text.split(";"))
        return cls(amount, frozenset(filter(None, names)))

    def __str__(self) -> str:
        return str(self.amount) or "what the machine has"


def probe(given: GivenResources, work_dir: Path) -> Resources:
    """What the agent has: what is `given`, and for names that are not, what is found.

    Cpus are those this process may run on; a GiB of memory and 5 GiB of the work dir's disk
    are left to the system, or half where there is less than twice that.

    Raises:
        Unavailable: if the disk cannot be looked at.
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
    """`total` less what is left to the system."""
    return total - spare if total >= 2 * spare else total // 2


def read_boot_id() -> str:
    """Changes when the machine restarts; empty where the kernel does not tell."""
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
        raise Unavailable(f"cannot look at the disk of {path}: {error.strerror}") from error
    return disk.f_blocks * disk.f_frsize


def _milli_mib(size: int) -> int:
    """Whole MiB, in thousandths."""
    return size // 1024**2 * 1000
