"""Callers, groups and rules."""

from __future__ import annotations

from typing import TypedDict

from croupier.api.times import time_text
from croupier.model.access import BUILTIN_GROUPS, BUILTIN_RULES
from croupier.v1 import access_pb2 as pb

BUILTIN_NAMES = frozenset(rule.name for rule in BUILTIN_RULES)


class Caller(TypedDict):
    """The caller, as the master knows it.

    Attributes:
        principal: empty without authentication.
        credential: its kind, such as `token`.
        expires: when the credential expires, in UTC; None: never, or unknown.
        is_auth_on: without authentication every caller may do everything.
    """

    principal: str
    groups: list[str]
    credential: str
    expires: str | None
    is_auth_on: bool


class CallerAndActions(Caller):
    """The caller, and what it may do.

    Attributes:
        may: actions that it may do on some object; the owner of a framework may do more with that.
        views_all: kinds of objects that it may view all of: `role`, `agent` and `cluster`.
    """

    may: list[str]
    views_all: list[str]


class Group(TypedDict):
    """Principals with the same permissions."""

    name: str
    members: list[str]
    is_builtin: bool


class Rule(TypedDict):
    """A permission: the subject may do the actions on the object."""

    name: str
    subject: str
    actions: list[str]
    object: str
    is_builtin: bool


class RevokedKey(TypedDict):
    """The key of certificates that are refused."""

    key_id: str
    description: str


class Policy(TypedDict):
    """All groups, rules and revoked keys."""

    groups: list[Group]
    rules: list[Rule]
    revoked_keys: list[RevokedKey]


def caller_view(answer: pb.WhoAmIResponse) -> Caller:
    """Return the caller."""
    return {
        "principal": answer.principal,
        "groups": list(answer.groups),
        "credential": answer.credential,
        "expires": time_text(answer.expires_ms) if answer.HasField("expires_ms") else None,
        "is_auth_on": answer.is_auth_on,
    }


def group_view(group: pb.Group) -> Group:
    """Return one group."""
    return {
        "name": group.name,
        "members": sorted(group.members),
        "is_builtin": group.is_builtin or group.name in BUILTIN_GROUPS,
    }


def rule_view(rule: pb.Rule) -> Rule:
    """Return one rule."""
    return {
        "name": rule.name,
        "subject": rule.subject,
        "actions": list(rule.actions),
        "object": rule.object,
        "is_builtin": rule.name in BUILTIN_NAMES,
    }


def policy_view(policy: pb.GetPolicyResponse) -> Policy:
    """Return all groups, rules (the built-in ones first) and revoked keys."""
    builtin = [
        rule_view(
            pb.Rule(
                name=rule.name,
                subject=rule.subject,
                actions=[action.value for action in rule.actions],
                object=rule.object,
            )
        )
        for rule in BUILTIN_RULES
    ]
    own = [rule_view(rule) for rule in policy.rules if rule.name not in BUILTIN_NAMES]
    return {
        "groups": [group_view(group) for group in policy.groups],
        "rules": [*builtin, *sorted(own, key=lambda view: view["name"])],
        "revoked_keys": [
            {"key_id": each.key_id, "description": each.description} for each in policy.revoked_keys
        ],
    }
