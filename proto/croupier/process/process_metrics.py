"""Metrics of the process of a daemon: open files, memory, processor time, lag of its loop."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Histogram

from croupier.model.log_throttle import LogThrottle
from croupier.process.logging import get_logger, lines_lost
from croupier.process.metric_families import Family

_PROC: Final = Path("/proc/self")
_PAGE: Final = resource.getpagesize()
INTERVAL_S = 0.05
# A longer lag is logged, at most once in 30 s.
WARN_S = 0.5
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_log = get_logger("croupier.loop")


def open_files() -> float:
    """Return how many files and sockets are open."""
    fds = _PROC / "fd"
    # Linux 6.2 and later report the number as the size; a list of 17,000 takes milliseconds.
    return fds.stat().st_size or sum(1 for _ in os.scandir(fds)) - 1


def _limit() -> float:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return float("inf") if soft == resource.RLIM_INFINITY else soft


# The source of these is not used: a process has one of each.
PROCESS: Final[tuple[Family[object], ...]] = (
    Family("process_open_files", "Open files and sockets of the process.", lambda _: open_files()),
    Family("process_open_files_limit", "Most files that the process may open.", lambda _: _limit()),
    Family(
        "process_resident_bytes",
        "Resident memory of the process.",
        lambda _: int((_PROC / "statm").read_text().split()[1]) * _PAGE,
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


class LoopWatch:
    """Measures the lag of the running loop by a timer, into `croupier_loop_lag_seconds`.

    While the timer is late, something blocks the loop: a decision, the conversion of a message, a
    slow disk, or another process that has the CPU.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = Histogram(
            "croupier_loop_lag_seconds",
            "Delay of a timer on the event loop: the time for which something blocked the loop.",
            registry=registry,
            buckets=_SECONDS,
        )
        self._throttle = LogThrottle()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start to measure the running loop."""
        self._set(asyncio.get_running_loop())

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + INTERVAL_S
        self._timer = loop.call_at(due, self._on_due, loop, due)

    def _on_due(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        late_s = max(loop.time() - due, 0.0)
        self._lag.observe(late_s)
        if late_s >= WARN_S and self._throttle.is_due("held", loop.time()):
            _log.warning("loop_held", seconds=round(late_s, 3))
        self._set(loop)
