"""Executors of tests, and functions that they call."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle

from croupier.futures import ClusterExecutor

SMALL: dict[str, Any] = {"cpus": 0.1, "mem": "128MB", "idle_s": 30.0}


@contextmanager
def executor_on(master: str, **options: Any) -> Iterator[ClusterExecutor]:
    """Yield an executor with small workers, and end it without waiting for calls."""
    executor = ClusterExecutor(master=master, **{"max_workers": 2, **SMALL, **options})
    try:
        yield executor
    finally:
        executor.terminate_workers()


def noted(path: Path, number: int, seconds: float = 0.0) -> int:
    """Append the number to a file, in one write, and return it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{number} {os.getpid()}\n".encode())
    os.close(descriptor)
    time.sleep(seconds)
    return number


def notes(path: Path) -> list[tuple[int, int]]:
    """Return the numbers in the file, each with the pid that wrote it."""
    if not path.exists():
        return []
    pairs = (line.split() for line in path.read_text().splitlines())
    return [(int(number), int(pid)) for number, pid in pairs]


# Workers cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
