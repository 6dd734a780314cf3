"""A copy of the shim in memory that no process can change.

A program in the namespaces of a task can find the file that the shim inside was started from, as
/proc/PID/exe or by a script for "/proc/self/exe". A task of the agent's user could write to it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

_EXEC: Final = 0x10
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def sealed_copy(program: Path) -> int:
    """Return a descriptor of the copy, which this user alone may execute.

    Raises:
        OSError: if it cannot be made.
    """
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        fd = os.memfd_create("croupier-shim", flags | _EXEC)
    except OSError as error:
        # A kernel before Linux 6.3.
        if error.errno != errno.EINVAL:
            raise
        fd = os.memfd_create("croupier-shim", flags)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(program.read_bytes())
        os.fchmod(fd, 0o500)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd
