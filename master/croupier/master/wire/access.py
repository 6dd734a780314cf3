"""Conversion of groups, rules and tokens; what is malformed is an `InvalidRequest`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from croupier.master.core.access_records import TokenId, TokenKind, TokenRecord
from croupier.master.core.policy_commands import (
    AddMember,
    PolicyChange,
    RemoveGroup,
    RemoveMember,
    RemoveRule,
    RestoreKey,
    RevokeKey,
    SetGroup,
    SetRule,
)
from croupier.model.access import BUILTIN_GROUPS, AccessPolicy, KeyId, Rule
from croupier.model.access_checks import parse_action
from croupier.model.errors import InvalidRequest
from croupier.model.principal import PrincipalName
from croupier.v1 import access_pb2 as pb
from croupier.wire.resources import check_count, resources_from_wire, resources_to_wire

MAX_MEMBERS: Final = 10_000
MAX_CHANGES: Final = 1_000
HASH_BYTES: Final = 32

_KINDS: Final = {
    pb.TOKEN_KIND_CLIENT: TokenKind.CLIENT,
    pb.TOKEN_KIND_JOIN: TokenKind.JOIN,
    pb.TOKEN_KIND_AGENT: TokenKind.AGENT,
}
_WIRE_KINDS: Final = {kind: wire for wire, kind in _KINDS.items()}


def policy_to_wire(policy: AccessPolicy) -> pb.GetPolicyResponse:
    """Convert groups and rules, by name."""
    return pb.GetPolicyResponse(
        groups=(
            pb.Group(name=name, members=sorted(members), is_builtin=name in BUILTIN_GROUPS)
            for name, members in sorted(policy.groups.items())
        ),
        rules=(rule_to_wire(rule) for _, rule in sorted(policy.rules.items())),
        revoked_keys=(
            pb.RevokedKey(key_id=key_id, description=note)
            for key_id, note in sorted(policy.revoked.items())
        ),
    )


def changes_from_wire(changes: Iterable[pb.PolicyChange]) -> tuple[PolicyChange, ...]:
    """Convert changes of the policy; raises InvalidRequest if one is malformed, or one too many."""
    found: list[PolicyChange] = []
    for change in changes:
        check_count(len(found) + 1, MAX_CHANGES, "changes in one call")
        found.append(_change_from_wire(change))
    return tuple(found)


def _change_from_wire(change: pb.PolicyChange) -> PolicyChange:
    match change.WhichOneof("change"):
        case "set_group":
            check_count(len(change.set_group.members), MAX_MEMBERS, "members of one group")
            return SetGroup(change.set_group.name, frozenset(change.set_group.members))
        case "remove_group":
            return RemoveGroup(change.remove_group)
        case "set_rule":
            return SetRule(rule_from_wire(change.set_rule))
        case "remove_rule":
            return RemoveRule(change.remove_rule)
        case "add_member":
            return AddMember(change.add_member.group, change.add_member.member)
        case "remove_member":
            return RemoveMember(change.remove_member.group, change.remove_member.member)
        case "revoke_key":
            return RevokeKey(KeyId(change.revoke_key.key_id), change.revoke_key.description)
        case "restore_key":
            return RestoreKey(KeyId(change.restore_key))
        case _:
            raise InvalidRequest("a change is empty or unknown to this master")


def rule_to_wire(rule: Rule) -> pb.Rule:
    """Convert a rule."""
    actions = [action.value for action in rule.actions]
    return pb.Rule(name=rule.name, subject=rule.subject, actions=actions, object=rule.object)


def rule_from_wire(wire: pb.Rule) -> Rule:
    """Convert a rule; raises InvalidRequest if an action is unknown, or there are too many."""
    check_count(len(wire.actions), 100, "actions of one rule")
    actions = tuple(dict.fromkeys(map(parse_action, wire.actions)))
    return Rule(wire.name, wire.subject, actions, wire.object)


def token_to_wire(token: TokenRecord) -> pb.Token:
    """Convert a token, without its hash."""
    return pb.Token(
        token_id=token.token_id,
        kind=_WIRE_KINDS[token.kind],
        principal=token.principal,
        expires_ms=token.expires_ms,
        created_ms=token.created_ms,
        created_by=token.created_by,
        uses_left=token.uses_left,
        attributes=token.attributes,
        description=token.description,
        max_resources=resources_to_wire(token.max_resources) if token.max_resources else None,
    )


def token_from_wire(wire: pb.Token, token_hash: bytes) -> TokenRecord:
    """Convert a new token; the core sets its creator and the time."""
    kind = _KINDS.get(wire.kind)
    if kind is None:
        raise InvalidRequest("the kind of the token is missing, or unknown to this master")
    if len(token_hash) != HASH_BYTES:
        raise InvalidRequest(f"token_hash has {HASH_BYTES} bytes: the SHA-256 of the secret part")
    return TokenRecord(
        TokenId(wire.token_id),
        kind,
        PrincipalName(wire.principal),
        token_hash.hex(),
        created_ms=0,
        expires_ms=wire.expires_ms if wire.HasField("expires_ms") else None,
        uses_left=wire.uses_left if wire.HasField("uses_left") else None,
        attributes=tuple(wire.attributes),
        description=wire.description,
        max_resources=resources_from_wire(wire.max_resources),
    )
