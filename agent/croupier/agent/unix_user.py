"""The user that a task runs as, if not the agent's own."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from croupier.model.errors import InvalidRequest

MAX_GROUPS = 65536


@dataclass(frozen=True, slots=True)
class UnixUser:
    """A user of this machine, with all its groups."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]

    def __str__(self) -> str:
        """Return UID:GID:GROUP,GROUP... for the shim."""
        return f"{self.uid}:{self.gid}:{','.join(map(str, self.groups))}"


def find_user(user: str) -> UnixUser | None:
    """Return the user to run a task as; None for the agent's own.

    Raises:
        InvalidRequest: if there is no such user, or the agent may not become another user.
    """
    if not user:
        return None
    try:
        entry = pwd.getpwnam(user)
    except (KeyError, ValueError):
        raise InvalidRequest(f"there is no user {user!r} on this agent") from None
    if entry.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise InvalidRequest(f"cannot run as {user!r}: the agent does not run as root")
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)[:MAX_GROUPS]
    return UnixUser(entry.pw_name, entry.pw_uid, entry.pw_gid, tuple(groups))
