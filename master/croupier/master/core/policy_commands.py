"""Commands for groups and rules.

Rule: after each command a known principal can still administer the cluster: the caller, or the
holder of a token. The core has no clock, so commands that need the time contain it.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from croupier.master.core import access_records
from croupier.master.core.authorisation import require_administer
from croupier.master.core.effects import AccessChanged, Effect, Save
from croupier.master.core.events import OperatorCommand
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.model import access
from croupier.model.access_checks import check_member, check_rule
from croupier.model.errors import Conflict, InvalidRequest, NotFound
from croupier.model.ids import check_id
from croupier.model.principal import ANONYMOUS, Principal

# Most text of one group's members; a store bounds the size of a record.
MAX_GROUP_BYTES = 128 * 1024
MAX_DESCRIPTION = 256
NameT = TypeVar("NameT", bound=str)
ValueT = TypeVar("ValueT")
MOST_REVOKED = 10_000
_KEY_ID = re.compile(rf"[0-9a-f]{{{access.KEY_DIGITS}}}\Z", re.ASCII)


@dataclass(slots=True)
class Draft:
    """A policy that is being changed.

    `groups`, `rules`, `revoked`: as in `AccessPolicy`.
    """

    groups: dict[str, frozenset[str]]
    rules: dict[str, access.Rule]
    revoked: dict[access.KeyId, str]
    settings: Settings

    def members(self, group: str) -> frozenset[str]:
        """Return the members of a group; raises NotFound if there is no such group."""
        if group not in self.groups:
            raise NotFound(f"no group {group[:80]!r}")
        return self.groups[group]

    def put(self, group: str, members: frozenset[str]) -> None:
        """Add a group, or replace its members; raises Conflict if it is too large."""
        most = self.settings.group_members
        too_many = len(members) > most
        if too_many or sum(len(each.encode()) for each in members) > MAX_GROUP_BYTES:
            raise Conflict(
                f"group {group!r} would have over {most} members or {MAX_GROUP_BYTES} bytes;"
                " use several groups"
            )
        self.groups[group] = members

    def check(self) -> None:
        """Check the draft after all of its changes. O(rules).

        Raises Conflict if there are too many groups, rules or keys, or a rule names no group.
        """
        settings = self.settings
        if len(self.groups) > settings.groups + len(access.BUILTIN_GROUPS):
            raise Conflict(f"there would be more than {settings.groups} groups")
        if len(self.rules) > settings.rules:
            raise Conflict(f"there would be more than {settings.rules} rules")
        if len(self.revoked) > MOST_REVOKED:
            raise Conflict(
                f"there would be more than {MOST_REVOKED} revoked keys; restore those whose"
                " certificates have expired"
            )
        for rule in self.rules.values():
            kind, _, group = rule.subject.partition(":")
            if kind == "group" and group not in self.groups:
                raise Conflict(f"rule {rule.name!r} is for group {group!r}, which there is not")


@dataclass(frozen=True, slots=True)
class SetGroup:
    """Add a group, or replace its members."""

    name: str
    members: frozenset[str]


@dataclass(frozen=True, slots=True)
class RemoveGroup:
    """Remove a group, unless it is built in."""

    name: str


@dataclass(frozen=True, slots=True)
class AddMember:
    """Add a member to a group; nothing changes if it is one already."""

    group: str
    member: str


@dataclass(frozen=True, slots=True)
class RemoveMember:
    """Remove a member from a group."""

    group: str
    member: str


@dataclass(frozen=True, slots=True)
class SetRule:
    """Add a rule, or replace the one of its name."""

    rule: access.Rule


@dataclass(frozen=True, slots=True)
class RemoveRule:
    """Remove a rule."""

    name: str


@dataclass(frozen=True, slots=True)
class RevokeKey:
    """Refuse all certificates with a key."""

    key_id: access.KeyId
    description: str = ""


@dataclass(frozen=True, slots=True)
class RestoreKey:
    """Accept the certificates with a revoked key again."""

    key_id: access.KeyId


PolicyChange = (
    SetGroup
    | RemoveGroup
    | AddMember
    | RemoveMember
    | SetRule
    | RemoveRule
    | RevokeKey
    | RestoreKey
)


def apply(change: PolicyChange, draft: Draft) -> None:
    """Make a change of the draft.

    Raises:
        InvalidRequest: if it is malformed, or would remove a built-in group.
        NotFound: if it names a group, member, rule or key that there is not.
        Conflict: if a group would be too large.
    """
    match change:
        case SetGroup(name, members):
            draft.put(check_id("group", name), members)
            for each in members:
                check_member(each)
        case RemoveGroup(name):
            draft.members(name)
            if name in access.BUILTIN_GROUPS:
                raise InvalidRequest(f"group {name!r} is built in; remove its members instead")
            del draft.groups[name]
        case AddMember(group, member):
            draft.put(group, draft.members(group) | {check_member(member)})
        case RemoveMember(group, member):
            members = draft.members(group)
            if member not in members:
                raise NotFound(f"{member[:80]!r} is not a member of group {group!r}")
            draft.groups[group] = members - {member}
        case SetRule(rule):
            draft.rules[rule.name] = check_rule(rule)
        case RemoveRule(name):
            _remove(draft.rules, name, f"no rule {name[:80]!r}")
        case RevokeKey(key_id, description):
            if not _KEY_ID.match(key_id):
                raise InvalidRequest(f"a key has an id of {access.KEY_DIGITS} hexadecimal digits")
            draft.revoked[key_id] = checked_description(description)
        case RestoreKey(key_id):
            _remove(draft.revoked, key_id, f"no key {key_id[:80]!r} is revoked")


def _remove(known: dict[NameT, ValueT], name: NameT, error: str) -> None:
    if name not in known:
        raise NotFound(error)
    del known[name]


def checked_description(text: str) -> str:
    """Return a description; raises InvalidRequest if it is too long, or not printable."""
    if len(text) > MAX_DESCRIPTION or not text.isprintable():
        raise InvalidRequest(f"a description has at most {MAX_DESCRIPTION} printable characters")
    return text


def changed_records(
    before: access.AccessPolicy, draft: Draft
) -> Iterator[access_records.AccessRecord]:
    """Yield the records that lead from one policy to the other."""
    for name in _changed(before.groups, draft.groups):
        members = draft.groups.get(name)
        if members is None or members == access.BUILTIN_GROUPS.get(name):
            yield access_records.ForgetGroup(name)
        else:
            yield access_records.GroupRecord(name, members)
    for name in _changed(before.rules, draft.rules):
        rule = draft.rules.get(name)
        yield access_records.ForgetRule(name) if rule is None else access_records.RuleRecord(rule)
    for key_id in _changed(before.revoked, draft.revoked):
        note = draft.revoked.get(key_id)
        yield (
            access_records.ForgetRevokedKey(key_id)
            if note is None
            else access_records.RevokedKeyRecord(key_id, note)
        )


def _changed(before: Mapping[NameT, object], after: Mapping[NameT, object]) -> list[NameT]:
    """Return the names whose values differ, in alphabetical order."""
    names = sorted(before.keys() | after.keys())
    return [name for name in names if before.get(name) != after.get(name)]


MAX_CHANGES = 100


@dataclass(frozen=True, slots=True)
class UpdatePolicy(OperatorCommand[access.AccessPolicy]):
    """Change groups and rules: all changes are made, or none.

    `dry_run`: change nothing, and return the policy that the changes would make.
    """

    changes: tuple[PolicyChange, ...]
    now_ms: int
    dry_run: bool = False
    caller: Principal = ANONYMOUS

    def execute(self, state: State, _now: float) -> Generator[Effect, None, access.AccessPolicy]:
        """Apply the changes in order; return the policy after them.

        Raises:
            PermissionDenied: if the caller may not administer the cluster.
            InvalidRequest, NotFound: if a change is malformed, or names what does not exist.
            Conflict: if the policy would be too large, or no known principal could change it.
        """
        require_administer(state, self.caller)
        if not 1 <= len(self.changes) <= MAX_CHANGES:
            raise InvalidRequest(f"a call makes 1 to {MAX_CHANGES} changes")
        before = state.access
        draft = Draft(dict(before.groups), dict(before.rules), dict(before.revoked), state.settings)
        for change in self.changes:
            apply(change, draft)
        draft.check()
        policy = access.AccessPolicy(before.is_on, draft.groups, draft.rules, draft.revoked)
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
    policy: access.AccessPolicy,
    caller: Principal,
    now_ms: int,
    without: access_records.TokenId | None = None,
) -> None:
    """Check that a known principal can administer the cluster.

    Credentials that the core does not know, such as certificates, do not count. Raises Conflict if
    neither the caller nor the holder of a token other than `without` can.
    """
    if not policy.groups[access.ADMIN]:
        raise Conflict(f"group {access.ADMIN!r} would be empty; add another member first")
    if not policy.is_on:
        return
    if access.decide(policy, caller, access.Action.ADMINISTER, access.CLUSTER):
        return
    able = access.allowed(policy, access.Action.ADMINISTER, access.CLUSTER)
    if not any(
        token.principal in able and token.token_id != without and not token.is_expired(now_ms)
        for token in state.tokens
    ):
        raise Conflict(
            "no known principal could administer the cluster any more; do this with another"
            " administrator's credential, or with the token of the master's --admin-token-file"
        )
