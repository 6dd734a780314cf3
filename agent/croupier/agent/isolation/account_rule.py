"""The accounts that tasks may run as on this agent."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from croupier.agent.isolation.uid_range import UidRange
from croupier.agent.unix_user import UnixUser, find_user
from croupier.model.errors import InvalidRequest

ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class AccountRule:
    """The accounts that tasks may run as.

    Attributes:
        default: of tasks without a user; None: the agent's own account.
        named: accounts that a task may name; `*` stands for all but root.
        uids: tasks may not run as an account with one of these.
    """

    default: UnixUser | None = None
    named: tuple[str, ...] = (ANY,)
    uids: UidRange | None = None

    def find(self, name: str) -> UnixUser | None:
        """Return the account that a task names, else the default; None for the agent's own.

        Raises:
            InvalidRequest: if there is no such account, or tasks may not run as it.
        """
        if not name:
            return self.default
        user = find_user(name)
        uid = os.geteuid() if user is None else user.uid
        if user is None and uid != 0:
            return None
        if name not in self.named and (uid == 0 or ANY not in self.named):
            raise InvalidRequest(
                f"tasks may not run as {name!r} on this agent: its --task-users"
                f" {','.join(self.named)} does not name it"
                + (", and * stands for all users but root" if uid == 0 else "")
            )
        if self.uids is not None and uid in self.uids:
            raise InvalidRequest(
                f"tasks may not run as {name!r} on this agent: uid {uid} is one of --task-uids"
            )
        return user
