"""Kills all processes of a group, and waits for their end."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from signal import SIGKILL, pidfd_send_signal
from typing import Final

KILL_S: Final = 10.0
_POLL_S: Final = 0.005


def kill_listed(processes: Callable[[], Collection[int]]) -> None:
    """Kill the processes that `processes` lists, until it lists none.

    Raises:
        OSError: if some are left after 10 s.
    """
    deadline = time.monotonic() + KILL_S
    while found := set(processes()):
        opened = {pid: fd for pid in found if pid and (fd := _open(pid)) is not None}
        try:
            # A pid that is listed still, after it was opened, names the process of the group.
            for pid in found.intersection(processes()) & opened.keys():
                with suppress(ProcessLookupError):
                    pidfd_send_signal(opened[pid], SIGKILL)
        finally:
            for fd in opened.values():
                os.close(fd)
        _wait(deadline, len(found))


def wait_until_empty(has_processes: Callable[[], bool]) -> None:
    """Wait for the end of processes that were killed.

    Raises:
        OSError: if some are left after 10 s.
    """
    deadline = time.monotonic() + KILL_S
    while has_processes():
        _wait(deadline, 0)


def _wait(deadline: float, left: int) -> None:
    if time.monotonic() >= deadline:
        number = f"{left} processes" if left else "processes"
        raise OSError(errno.EBUSY, f"{number} do not end")
    time.sleep(_POLL_S)


def _open(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
