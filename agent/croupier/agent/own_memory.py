"""The memory of the agent: tasks of the same user can neither read it nor trace the agent.

A process that is not dumpable belongs to root under /proc, so its environment, with credentials,
and its descriptors are closed to its own user. It also leaves no core dump.
"""

from __future__ import annotations

import ctypes

_PR_SET_DUMPABLE = 4


def hide_own_memory() -> None:
    """Make this process not dumpable. The programs that it executes are dumpable again."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
