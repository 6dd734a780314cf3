"""Commands for groups and rules.

Rule: after each command a known principal can still administer the cluster: the caller, or the
holder of a token. The core has no clock, so commands that need the time contain it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from croupier.master.core.access_records import TokenId
from croupier.master.core.authorisation import require_administer
from croupier.master.core.effects import AccessChanged, Effect, Save
from croupier.master.core.operator_command import OperatorCommand
from croupier.master.core.policy_changes import (
    Draft,
    PolicyChange,
    apply,
    changed_records,
)
from croupier.master.core.state import State
from croupier.model.access import ADMIN, CLUSTER, AccessPolicy, Action, allowed, decide
from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.principal import ANONYMOUS, Principal

MAX_CHANGES = 100


@dataclass(frozen=True, slots=True)
class UpdatePolicy(OperatorCommand[AccessPolicy]):
    """Change groups and rules: all changes are made, or none.

    Attributes:
        now_ms: milliseconds since the epoch.
        dry_run: change nothing, and return the policy that the changes would make.
    """

    changes: tuple[PolicyChange, ...]
    now_ms: int
    dry_run: bool = False
    caller: Principal = ANONYMOUS

    def execute(self, state: State, _now: float) -> Generator[Effect, None, AccessPolicy]:
        """Apply the changes in order; return the policy after them.

        Raises:
            PermissionDenied: if the caller may not administer the cluster.
            InvalidRequest, NotFound: if a change is malformed, or names what does not exist.
            Conflict: if the policy would be too large, or no known principal could change it.
        """
        require_administer(state, self.caller)
        if not 1 <= len(self.changes) <= MAX_CHANGES:
            raise InvalidRequest(f"a call makes 1 to {MAX_CHANGES} changes")
        draft = Draft.of(state.access, state.settings)
        for change in self.changes:
            apply(change, draft)
        draft.check()
        before = state.access
        policy = AccessPolicy(before.is_on, draft.groups, draft.rules, draft.revoked)
        check_administered(state, policy, self.caller, self.now_ms)
        records = list(changed_records(before, draft))
        if records and not self.dry_run:
            for record in records:
                yield Save(record)
            state.set_access(policy)
            yield AccessChanged(tuple(sorted(policy.revoked.keys() - before.revoked.keys())))
        return policy


def check_administered(
    state: State,
    policy: AccessPolicy,
    caller: Principal,
    now_ms: int,
    without: TokenId | None = None,
) -> None:
    """Check that a known principal can administer the cluster.

    Credentials that the core does not know, such as certificates, do not count.

    Raises:
        Conflict: if neither the caller nor the holder of a token other than `without` can.
    """
    if not policy.groups[ADMIN]:
        raise Conflict(f"group {ADMIN!r} would be empty; add another member first")
    if not policy.is_on:
        return
    if decide(policy, caller, Action.ADMINISTER, CLUSTER):
        return
    able = allowed(policy, Action.ADMINISTER, CLUSTER)
    if not any(
        token.principal in able and token.token_id != without and not token.is_expired(now_ms)
        for token in state.tokens
    ):
        raise Conflict(
            "no known principal could administer the cluster any more; do this with another"
            " administrator's credential, or with the token of the master's --admin-token-file"
        )


PolicyCommand = UpdatePolicy
