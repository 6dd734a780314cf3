"""The capabilities that tasks may have.

A task that is not root gets none, whatever program it executes. A task that is root keeps a few,
which administration inside its own files needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID, _KILL = 0, 1, 3, 4, 5
_SETGID, _SETUID, _SETPCAP, _NET_BIND_SERVICE = 6, 7, 8, 10
ROOT_KEPT: Final = sum(
    1 << number
    for number in (
        _CHOWN,
        _DAC_OVERRIDE,
        _FOWNER,
        _FSETID,
        _KILL,
        _SETGID,
        _SETUID,
        _NET_BIND_SERVICE,
    )
)
_STATUS: Final = Path("/proc/self/status")


class OwnCapabilities:
    """The capabilities of this process.

    Attributes:
        bounding: what programs that it executes can have at most.
        can_drop: whether it can take away from that.
    """

    def __init__(self, status: str | None = None) -> None:
        """Read them, or take them from the text of /proc/PID/status."""
        lines = (_STATUS.read_text() if status is None else status).splitlines()
        found = dict(line.split(":", 1) for line in lines if line.startswith("Cap"))
        self.bounding = int(found["CapBnd"], 16)
        self.can_drop = bool(int(found["CapEff"], 16) >> _SETPCAP & 1)

    def option(self, uid: int) -> str | None:
        """Return the shim's option for a task of this user; None if there is nothing to do.

        Without CAP_SETPCAP the bounding set stays. A user that is not root then has no
        capabilities all the same, and with `no-new-privs` can get none.
        """
        if self.can_drop:
            return f"bounding={ROOT_KEPT if uid == 0 else 0:x}"
        return f"bounding={self.bounding:x}" if uid == 0 else None
