"""Flags of an agent for the Unix users of its tasks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter

from croupier.agent.isolation.account_rule import ANY
from croupier.agent.isolation.uid_range import DEFAULT_UIDS, UidRange
from croupier.model.errors import InvalidRequest
from croupier.process.cli import read_by

OWN: Final = "own"


def _parse_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if text and not all(names):
        raise InvalidRequest(f"{text!r} is not a list NAME,NAME...")
    return names if text else ()


def _format_names(names: tuple[str, ...]) -> str:
    return ",".join(names)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TaskUserFlags:
    """The Unix users that tasks run as."""

    task_user: str | None = None
    """User of tasks that name none: own gives each task a uid of its own while it runs; else an
    account. Default: own for an agent that is root, else the agent's account."""

    task_uids: Annotated[UidRange, read_by(UidRange.parse)] = DEFAULT_UIDS
    """Uids, and gids, for --task-user own, FIRST-LAST: none of them may be in /etc/passwd,
    /etc/group, /etc/subuid or /etc/subgid. Agents on one machine may share them."""

    task_users: Annotated[
        tuple[str, ...], read_by(_parse_names, negative=(), show_default=_format_names)
    ] = (ANY,)
    """Accounts that a task may name, separated by commas. * stands for all but root, which a list
    has to name: '*,root'. Only an agent that is root can run tasks as other accounts than its
    own."""

    @property
    def gives_own(self) -> bool:
        """Whether a task without a user gets a uid of its own."""
        return self.task_user == OWN or (self.task_user is None and os.geteuid() == 0)
