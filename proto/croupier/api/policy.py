"""Callers, groups and rules."""

from __future__ import annotations

from typing import TypedDict

from croupier.api.objects import as_object, makes
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


@makes(Group)
def group_view(group: pb.Group) -> Group:
    """Return one group."""
    return as_object(
        Group,
        group,
        members=sorted(group.members),
        is_builtin=group.is_builtin or group.name in BUILTIN_GROUPS,
    )


def rule_view(rule: pb.Rule) -> Rule:
    """Return one rule."""
    return as_object(Rule, rule, is_builtin=rule.name in BUILTIN_NAMES)


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
    return as_object(Policy, policy, rules=[*builtin, *sorted(own, key=lambda view: view["name"])])
