"""Prepares the users of tasks when an agent starts, and refuses what the machine does not allow."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from croupier.agent.isolation import uid_claims
from croupier.agent.isolation.account_rule import AccountRule
from croupier.agent.isolation.task_users import TaskUsers
from croupier.agent.isolation.uid_claims import UidClaims
from croupier.agent.isolation.uid_range import DEFAULT_UIDS
from croupier.agent.sandbox import Sandboxes
from croupier.agent.unix_user import UnixUser, find_user
from croupier.agent.work_dir import WorkDir
from croupier.model.errors import InvalidRequest

if TYPE_CHECKING:  # cyclopts
    from croupier.agent.isolation.user_flags import TaskUserFlags

_TRIAL_S: Final = 10.0
_ENTER: Final = ("/bin/sh", "-c", 'cd -- "$1"', "sh")
_INSTEAD: Final = "--task-user NAME runs tasks as an account"


def prepare_users(
    flags: TaskUserFlags, work_dir: WorkDir, sandboxes: Sandboxes, base: Path | None = None
) -> TaskUsers:
    """Return the users of an agent's tasks. Takes some milliseconds.

    Raises:
        InvalidRequest: if the machine, or the agent's account, does not allow what flags ask for.
        Unavailable: if the claims on uids cannot be kept.
    """
    uids = flags.task_uids
    if not flags.gives_own:
        rule = AccountRule(_default_account(flags.task_user), flags.task_users)
        return TaskUsers(sandboxes, rule, uids)
    if os.geteuid() != 0:
        raise InvalidRequest("--task-user own needs an agent that is root")
    try:
        uids.check_unused()
    except InvalidRequest as error:
        raise InvalidRequest(f"--task-uids: {error}") from None
    for uid in (uids.first, uids.last):
        _check_reach(uid, work_dir.sandboxes)
    claims = UidClaims(uids, work_dir.runs, base)
    return TaskUsers(sandboxes, AccountRule(None, flags.task_users, uids), uids, claims)


def release_own_uids(work_dir: WorkDir) -> None:
    """Release the uids of all tasks of a work dir; their processes have ended.

    Raises:
        Unavailable: if the claims cannot be read.
    """
    if os.geteuid() == 0 and uid_claims.BASE.is_dir():
        claims = UidClaims(DEFAULT_UIDS, work_dir.runs)
        TaskUsers(Sandboxes(work_dir.sandboxes), AccountRule(), DEFAULT_UIDS, claims).recover(())
        claims.close()


def _default_account(name: str | None) -> UnixUser | None:
    """Return the account of tasks that name none; None for the agent's own."""
    if not name:
        return None
    try:
        return find_user(name)
    except InvalidRequest as error:
        own = _own_account()
        more = "" if os.geteuid() == 0 else f"; it runs tasks as its own account, {own}"
        raise InvalidRequest(f"--task-user {name}: {error}{more}") from None


def _own_account() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _check_reach(uid: int, directory: Path) -> None:
    """Check that the agent can become a uid, and that this can enter the directory."""
    command = (*_ENTER, str(directory))
    try:
        trial = subprocess.run(
            command, user=uid, group=uid, extra_groups=(), timeout=_TRIAL_S,
            stdin=subprocess.DEVNULL, capture_output=True, cwd="/", env={}, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidRequest(
            f"the agent cannot give tasks uids of their own: starting /bin/sh as uid {uid} failed:"
            f" {why}. {_INSTEAD}; --task-uids FIRST-LAST gives other uids"
        ) from None
    if trial.returncode:
        raise InvalidRequest(
            f"tasks have uids of their own, which cannot enter {_barrier(directory)}: give"
            f" --work-dir a directory below ones that all users can enter, or make that one so"
            f" (chmod o+x); {_INSTEAD}"
        )


def _barrier(directory: Path) -> Path:
    """Return the first directory on the way that others cannot enter."""
    for path in (*reversed(directory.parents), directory):
        if not path.stat().st_mode & stat.S_IXOTH:
            return path
    return directory
