"""What the bench reads of the machine: its own CPU, that of others, and memory.

The bench is the reaper of all its descendants: also of daemons that detach themselves. So the CPU
of a system under test is that of all descendants that live, and of those that were waited for:
daemons, client, shims and tasks.
"""

from __future__ import annotations

import ctypes
import os
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_HZ = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36
# The CPU of others up to which a measurement counts, in CPUs.
QUIET_CPUS = 0.25
_LOOK_S = 0.4
# Of the session, as by nice; the kernel divides the CPUs among sessions first.
_PRECEDENCE = -10


@dataclass(frozen=True, slots=True)
class Spent:
    """What passed during a measurement.

    Attributes:
        seconds: of the clock.
        cpu_s: of the bench's descendants.
        foreign_cpus: CPUs that were busy with something else.
    """

    seconds: float
    cpu_s: float
    foreign_cpus: float


def become_reaper() -> None:
    """Make orphaned descendants children of this process."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def take_precedence() -> None:
    """Take the CPUs before processes of other sessions do, in a session of its own. Needs root."""
    os.setsid()
    Path("/proc/self/autogroup").write_text(str(_PRECEDENCE))


def spent(work: Callable[[], object]) -> Spent:
    """Measure `work`."""
    return spent_on(work)[1]


def spent_on(work: Callable[[], T]) -> tuple[T, Spent]:
    """Measure `work`; return its result as well."""
    busy, ours, own, began = _busy_s(), cpu_s(), time.process_time(), time.perf_counter()
    result = work()
    seconds = time.perf_counter() - began
    used = cpu_s() - ours
    foreign = _busy_s() - busy - used - (time.process_time() - own)
    return result, Spent(seconds, used, round(max(0.0, foreign) / seconds, 2))


def wait_for_quiet(patience_s: float) -> None:
    """Wait until others use few CPUs; at most for the given time."""
    deadline = time.monotonic() + patience_s
    while True:
        looked = spent(lambda: time.sleep(_LOOK_S))
        if looked.foreign_cpus <= QUIET_CPUS / 2 or time.monotonic() >= deadline:
            return


def cpu_s() -> float:
    """Return the seconds of CPU that all descendants have used, also those that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    live = sum(cpu_of(pid, with_children=True) for pid in descendants(os.getpid()))
    return ended.ru_utime + ended.ru_stime + live


def cpu_of(pid: int, *, with_children: bool = False) -> float:
    """Return the seconds of CPU of a process, and of its children that it has waited for."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, words[11 : 15 if with_children else 13])) / _HZ
    return 0.0


def descendants(pid: int) -> list[int]:
    """Return the live descendants of a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(words[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = list(children.get(pid, ()))
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], ())
    return found


def memory_mib(pid: int) -> tuple[float, float]:
    """Return the resident and the proportional memory of a process, in MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {
        name: int(rest.split()[0]) / 1024 for name, rest in (line.split(":") for line in lines)
    }
    return round(sizes["Rss"], 1), round(sizes["Pss"], 1)


def switches(pid: int) -> tuple[int, int]:
    """Return the voluntary and the involuntary context switches of all threads of a process."""
    totals = [0, 0]
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with suppress(OSError):
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
            totals[0] += int(lines["voluntary_ctxt_switches"])
            totals[1] += int(lines["nonvoluntary_ctxt_switches"])
    return totals[0], totals[1]


def _busy_s() -> float:
    """Return the seconds of CPU that the whole machine has used since it started."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle, waiting = ticks[3:5]
    return (sum(ticks) - idle - waiting) / _HZ
