"""The Unix users that tasks run as, if not as the agent's own: accounts, and uids of their own."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from croupier.model.errors import InvalidRequest

# Stands for all accounts but root, where accounts are named.
ANY: Final = "*"
MAX_GROUPS = 65536
# The value of USER and LOGNAME for a uid of a task's own, which has no account.
OWN_NAME = "task"
# 0 to 999 are the system's, and 65534 is the account nobody. The largest 32-bit number is none.
_LEAST: Final = 1000
_MOST: Final = 2**31 - 1
_SUBORDINATE: Final = (Path("/etc/subuid"), Path("/etc/subgid"))


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

    Raises InvalidRequest if there is no such account, or the agent may not become another user.
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


@dataclass(frozen=True, slots=True)
class UidRange:
    """Uids from `first` to `last`, which are gids too."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if not _LEAST <= self.first <= self.last <= _MOST:
            raise InvalidRequest(f"uids of tasks are between {_LEAST} and {_MOST}, FIRST-LAST")

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __contains__(self, uid: object) -> bool:
        return isinstance(uid, int) and self.first <= uid <= self.last

    @classmethod
    def parse(cls, text: str) -> UidRange:
        """Read FIRST-LAST; raises InvalidRequest if it is no range, or out of bounds."""
        first, dash, last = text.partition("-")
        if not (dash and first.isdecimal() and last.isdecimal() and len(text) < 24):
            raise InvalidRequest(f"{text!r} is not FIRST-LAST, such as {DEFAULT_UIDS}")
        return cls(int(first), int(last))

    def check_unused(self) -> None:
        """Check that no account, group or subordinate id of this machine is in the range.

        Raises InvalidRequest if one is.
        """
        for what, first, last in _used():
            if first <= self.last and self.first <= last:
                raise InvalidRequest(
                    f"{what} has ids in {self}; give uids that no account and no /etc/subuid uses"
                )


# Above the subordinate ids of the first 29 users and below 2^21, the limit of the tar format.
# systemd and directory services rarely give these.
DEFAULT_UIDS: Final = UidRange(2_000_000, 2_065_535)


def _used() -> Iterator[tuple[str, int, int]]:
    for user in pwd.getpwall():
        yield f"the user {user.pw_name}", user.pw_uid, user.pw_uid
        yield f"the user {user.pw_name}", user.pw_gid, user.pw_gid
    for group in grp.getgrall():
        yield f"the group {group.gr_name}", group.gr_gid, group.gr_gid
    for path in _SUBORDINATE:
        yield from _subordinate(path)


def _subordinate(path: Path) -> Iterator[tuple[str, int, int]]:
    """Yield the ranges of a file with lines NAME:FIRST:COUNT."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        name, _, rest = line.partition(":")
        first, _, count = rest.partition(":")
        if first.isdecimal() and count.isdecimal() and int(count):
            yield f"{name} in {path}", int(first), int(first) + int(count) - 1
