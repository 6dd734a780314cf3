"""The account that a task runs under, where that is not the agent's own."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from croupier.model.errors import InvalidRequest

MAX_GROUPS = 65536


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine, with all groups that it is in."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]

    def __str__(self) -> str:
        """As the shim reads it: UID:GID:GROUP,GROUP..."""
        return f"{self.uid}:{self.gid}:{','.join(map(str, self.groups))}"


def find_account(user: str) -> Account | None:
    """The account to become; None if the agent's own will do.

    Raises:
        InvalidRequest: if there is no such user, or the agent may not become somebody else.
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
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, tuple(groups))
