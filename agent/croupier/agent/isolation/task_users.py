"""The Unix user of each task: an account that the agent allows, or a uid of the task's own.

Rule: a uid of its own belongs to one live task. When the run has ended, the agent becomes the
owner of the sandbox. So a later task with the same uid cannot enter it. An agent whose machine or
account does not allow what its flags ask for refuses to start.
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from croupier.agent.core.tasks import Key
from croupier.agent.isolation import uid_claims
from croupier.agent.isolation.uid_claims import Leftovers, UidClaims
from croupier.agent.sandbox import Sandboxes
from croupier.agent.unix_user import ANY, DEFAULT_UIDS, UidRange, UnixUser, find_user, own_user
from croupier.agent.work_dir import WorkDir
from croupier.model.access import AGENT_USER, OWN_USER
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.process.logging import get_logger

if TYPE_CHECKING:  # cyclopts
    from croupier.agent.isolation.flags import TaskUserFlags

_log = get_logger("croupier.agent")
_TRIAL_S: Final = 10.0
_ENTER: Final = ("/bin/sh", "-c", 'cd -- "$1"', "sh")
_INSTEAD: Final = "--task-user NAME runs tasks as an account"


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
        """Return the task's account or the default; None: the agent's. Raises InvalidRequest."""
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


class TaskUsers:
    """The users of the tasks of one agent."""

    def __init__(
        self,
        sandboxes: Sandboxes,
        rule: AccountRule,
        uids: UidRange,
        claims: UidClaims | None = None,
    ) -> None:
        """Without `claims`, tasks without a user run as the default of `rule`."""
        self._sandboxes, self._rule, self._uids, self._claims = sandboxes, rule, uids, claims
        self._own: dict[str, tuple[Key, int]] = {}

    @property
    def default(self) -> str:
        """The account of tasks without a user: `(own)`, `(agent)` or a name."""
        if self._claims is not None:
            return OWN_USER
        return AGENT_USER if self._rule.default is None else self._rule.default.name

    def take(self, key: Key, run: str, name: str) -> UnixUser | None:
        """Return a new run's user until `release`; None: the agent's. Raises CroupierError."""
        if not name and self._claims is not None and run not in self._own:
            self._own[run] = (key, self._claims.take(run))
        return self.of(run, name)

    def of(self, run: str, name: str) -> UnixUser | None:
        """Return a live run's user; None: the agent's. Raises CroupierError if it is unknown."""
        if name or self._claims is None:
            return self._rule.find(name)
        if run not in self._own:
            raise Unavailable("an earlier life of the agent gave the task another user")
        return own_user(self._own[run][1])

    def release(self, run: str) -> None:
        """Take ownership of the sandbox of an ended run, and release its uid. Idempotent."""
        if run not in self._own:
            return
        key, uid = self._own[run]
        if not self._take_over(key, uid):
            # The uid stays claimed until the next agent starts.
            return
        del self._own[run]
        if self._claims is not None:
            self._claims.release(uid)

    def leftovers(self) -> Leftovers | None:
        """Return what removes the shared files of ended tasks; None without uids of their own."""
        return None if self._claims is None else Leftovers(self._uids, self._claims)

    def recover(self, live: Iterable[tuple[Key, str]]) -> None:
        """Find the uids of `live` runs of earlier agents, and release all others. O(sandboxes)."""
        runs = dict(live)
        claimed = {} if self._claims is None else self._claims.own()
        known = set(claimed.values())
        for key, each in runs.items():
            # Its processes may live even if its sandbox cannot be read now.
            if each in claimed:
                self._own[each] = (key, claimed[each])
        for key, _ in self._sandboxes.existing():
            uid = self._sandboxes.owner_of(key)
            if uid not in self._uids and uid not in known:
                continue
            run = runs.get(key)
            if run is not None:
                self._own[run] = (key, uid)
            else:
                self._take_over(key, uid)
        if self._claims is not None:
            for run, (_, uid) in self._own.items():
                self._claims.renew(uid, run)
            for run, uid in claimed.items():
                if run not in self._own:
                    self._claims.release(uid)

    def _take_over(self, key: Key, uid: int) -> bool:
        try:
            self._sandboxes.take_over(key, uid)
        except OSError as error:
            path = self._sandboxes.path_of(key)
            _log.warning("sandbox_not_taken_over", path=path, error=str(error))
            return False
        return True


def prepare_users(
    flags: TaskUserFlags, work_dir: WorkDir, sandboxes: Sandboxes, base: Path | None = None
) -> TaskUsers:
    """Return the users of an agent's tasks, in some ms; raises InvalidRequest or Unavailable."""
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
    """Release the uids of a work dir's ended tasks; raises Unavailable if claims are unreadable."""
    if os.geteuid() == 0 and uid_claims.BASE.is_dir():
        claims = UidClaims(DEFAULT_UIDS, work_dir.runs)
        TaskUsers(Sandboxes(work_dir.sandboxes), AccountRule(), DEFAULT_UIDS, claims).recover(())
        claims.close()


def _default_account(name: str | None) -> UnixUser | None:
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
    for path in (*reversed(directory.parents), directory):
        if not path.stat().st_mode & stat.S_IXOTH:
            return path
    return directory
