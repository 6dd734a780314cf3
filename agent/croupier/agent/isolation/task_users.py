"""The Unix user of each task: an account that the agent allows, or a uid of the task's own.

Rule: a uid of its own belongs to one live task. When the run has ended, the agent becomes the
owner of the sandbox. So a later task with the same uid cannot enter it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from croupier.agent.core.tasks import Key
from croupier.agent.isolation.account_rule import AccountRule
from croupier.agent.isolation.uid_claims import Leftovers, UidClaims
from croupier.agent.isolation.uid_range import UidRange
from croupier.agent.sandbox import Sandboxes
from croupier.agent.unix_user import UnixUser, own_user
from croupier.model.access import AGENT_USER, OWN_USER
from croupier.model.errors import Unavailable
from croupier.model.isolation import NO_FEATURES, Feature, Features
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")


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

    @property
    def features(self) -> Features:
        """What the agent can do about the users of tasks."""
        return frozenset({Feature.USERS}) if os.geteuid() == 0 else NO_FEATURES

    def take(self, key: Key, run: str, name: str) -> UnixUser | None:
        """Return the user of a new run until `release`; None for the agent's own account.

        Raises:
            InvalidRequest: if the task names an account that it may not run as.
            Unavailable: if no uid is free.
        """
        if name or self._claims is None:
            return self._rule.find(name)
        if run not in self._own:
            self._own[run] = (key, self._claims.take(run))
        return own_user(self._own[run][1])

    def of(self, run: str, name: str) -> UnixUser | None:
        """Return the user of a live run; None for the agent's own account.

        Raises:
            InvalidRequest: if the task names an account that it may not run as.
            Unavailable: if the run has a uid of its own that this agent does not know.
        """
        if name or self._claims is None:
            return self._rule.find(name)
        if run not in self._own:
            raise Unavailable("an earlier life of the agent gave the task another user")
        return own_user(self._own[run][1])

    def release(self, run: str) -> None:
        """Take over the sandbox of a run that has ended, and release its uid. Repeatable."""
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
