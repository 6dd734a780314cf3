"""Metrics of the process of a daemon: its open files, memory and processor time."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Final

from croupier.process.logging import lines_lost
from croupier.process.metric_families import Family

_PROC: Final = Path("/proc/self")
_PAGE: Final = resource.getpagesize()


def open_files() -> float:
    """Return how many files and sockets are open."""
    fds = _PROC / "fd"
    # Linux 6.2 and later report the number as the size; a list of 17,000 takes milliseconds.
    return fds.stat().st_size or sum(1 for _ in os.scandir(fds)) - 1


def _limit() -> float:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return float("inf") if soft == resource.RLIM_INFINITY else soft


def _resident_bytes() -> float:
    return int((_PROC / "statm").read_text().split()[1]) * _PAGE


# The source of these is not used: a process has one of each.
PROCESS: Final[tuple[Family[object], ...]] = (
    Family("process_open_files", "Open files and sockets of the process.", lambda _: open_files()),
    Family("process_open_files_limit", "Most files that the process may open.", lambda _: _limit()),
    Family(
        "process_resident_bytes",
        "Resident memory of the process.",
        lambda _: _resident_bytes(),
    ),
    Family(
        "process_cpu_seconds",
        "Processor time of the process.",
        lambda _: time.process_time(),
        is_counter=True,
    ),
    Family(
        "log_lines_lost",
        "Log lines that stderr did not take: it failed, or its reader was too slow.",
        lambda _: lines_lost(),
        is_counter=True,
    ),
)
