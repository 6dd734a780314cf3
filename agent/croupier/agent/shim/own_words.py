"""The arguments and variables of a process, as it tells them itself.

Rule: a process may declare any part of its memory to be its arguments or variables
(`prctl(PR_SET_MM)` needs no right), even a terabyte. So no more is read than a program can be
started with.
"""

from __future__ import annotations

import os
from typing import Final

# A kernel starts programs with a quarter of the limit of the stack, which is 8 MiB by default.
MOST_BYTES: Final = 2 * 1024 * 1024


def read_own_words(path: str) -> bytes:
    """Return the beginning of /proc/PID/environ or /proc/PID/cmdline, `MOST_BYTES` at most.

    Raises:
        OSError: if the process has ended, or may not be read.
    """
    parts, left = [], MOST_BYTES
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while left and (part := os.read(fd, left)):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(fd)
    return b"".join(parts)
