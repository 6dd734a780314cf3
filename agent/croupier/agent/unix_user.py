"""The user that a task runs as, if not the agent's own."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from croupier.model.errors import InvalidRequest

MAX_GROUPS = 65536
# The value of USER and LOGNAME for a uid of a task's own, which has no account.
OWN_NAME = "task"


@dataclass(frozen=True, slots=True)
class UnixUser:
    """A user of this machine, with all its groups.

    Attributes:
        is_own: whether no other live task of this machine has the uid. It has no account.
    """

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    is_own: bool = False

    def __str__(self) -> str:
        """Return UID:GID:GROUP,GROUP... for the shim."""
        return f"{self.uid}:{self.gid}:{','.join(map(str, self.groups))}"


def own_user(uid: int) -> UnixUser:
    """Return the user of one task, without account and supplementary groups."""
    return UnixUser(OWN_NAME, uid, uid, (), is_own=True)


def find_user(user: str) -> UnixUser | None:
    """Return an account of this machine; None for the agent's own.

    Raises:
        InvalidRequest: if there is no such account, or the agent may not become another user.
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
