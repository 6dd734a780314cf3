"""Access policy: who may do what on which object.

Rule: everything that no rule allows is denied. Rules only allow, so their order does not matter,
and adding one never takes a permission away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NewType

from croupier.model.errors import InvalidRequest
from croupier.model.ids import check_id, check_role
from croupier.model.isolation import Isolation
from croupier.model.principal import Principal, PrincipalName


class Action(Enum):
    """What a principal may be permitted to do.

    Attributes:
        REGISTER: subscribe a framework in a role.
        RUN_AS: launch tasks as a Unix user.
        VIEW: see roles, frameworks, offers and tasks of a role, or an agent.
        READ_OUTPUT: read the output of a role's tasks.
        KILL: kill a role's tasks.
        TEARDOWN: tear down a role's frameworks.
        OPERATE_AGENTS: drain, deactivate or reactivate an agent, or declare it gone.
        CHANGE_ROLES: change the settings of a role.
        READ_METRICS: read the metrics of the cluster.
        ADMINISTER: change groups, rules and tokens.
        LAUNCH_IMAGE: launch tasks in a container image or root directory.
        READ_FILES: list and read the files in the sandboxes of a role's tasks.
        EXEC: run commands beside a role's tasks, with all that these may do and see.
    """

    REGISTER = "register"
    RUN_AS = "run-as"
    VIEW = "view"
    READ_OUTPUT = "read-output"
    KILL = "kill"
    TEARDOWN = "teardown"
    OPERATE_AGENTS = "operate-agents"
    CHANGE_ROLES = "change-roles"
    READ_METRICS = "read-metrics"
    ADMINISTER = "administer"
    LAUNCH_IMAGE = "launch-image"
    READ_FILES = "read-files"
    EXEC = "exec"


class ObjectKind(Enum):
    """Kind of an object, the first part of its text."""

    ROLE = "role"
    AGENT = "agent"
    USER = "user"
    IMAGE = "image"
    CLUSTER = "cluster"


ANY: Final = "*"
# `*` is the name of the default role, so all roles have another pattern.
ALL_ROLES: Final = "**"
# Stands for the account that an agent runs as, often root.
AGENT_USER: Final = "(agent)"
# Of an agent that gives each task a uid of its own; no object of rules.
OWN_USER: Final = "(own)"
# Most decisions that `Permissions` remembers.
MAX_DECIDED: Final = 100
# The kinds of objects that each action takes.
TAKES: Final[Mapping[Action, frozenset[ObjectKind]]] = {
    Action.REGISTER: frozenset({ObjectKind.ROLE}),
    Action.RUN_AS: frozenset({ObjectKind.USER}),
    Action.VIEW: frozenset({ObjectKind.ROLE, ObjectKind.AGENT, ObjectKind.CLUSTER}),
    Action.READ_OUTPUT: frozenset({ObjectKind.ROLE}),
    Action.KILL: frozenset({ObjectKind.ROLE}),
    Action.TEARDOWN: frozenset({ObjectKind.ROLE}),
    Action.OPERATE_AGENTS: frozenset({ObjectKind.AGENT}),
    Action.CHANGE_ROLES: frozenset({ObjectKind.ROLE}),
    Action.READ_METRICS: frozenset({ObjectKind.CLUSTER}),
    Action.ADMINISTER: frozenset({ObjectKind.CLUSTER}),
    Action.LAUNCH_IMAGE: frozenset({ObjectKind.IMAGE}),
    Action.READ_FILES: frozenset({ObjectKind.ROLE}),
    Action.EXEC: frozenset({ObjectKind.ROLE}),
}


@dataclass(frozen=True, slots=True)
class Object:
    """An object of an action: a role, an agent, a Unix user, an image, or the cluster.

    Attributes:
        name: the role's path, the agent's id, the user's name or the image as tasks name it; empty
            for the cluster.
    """

    kind: ObjectKind
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> Object:
        """Read `role:PATH`, `agent:ID`, `user:NAME`, `image:NAME` or `cluster`.

        Raises InvalidRequest if it is none of these.
        """
        kind, name = split_object(text)
        if kind is ObjectKind.ROLE:
            check_role(name)
        elif kind is ObjectKind.IMAGE:
            Isolation(image=name or " ").check()
        elif kind is not ObjectKind.CLUSTER:
            check_id(kind.value, name)
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}" if self.name else self.kind.value


CLUSTER: Final = Object(ObjectKind.CLUSTER)


def role_object(role: str) -> Object:
    """Return the role as an object."""
    return Object(ObjectKind.ROLE, role)


def agent_object(agent_id: str) -> Object:
    """Return the agent as an object."""
    return Object(ObjectKind.AGENT, agent_id)


def user_object(user: str) -> Object:
    """Return the Unix user as an object; without a name, the account that the agent runs as."""
    return Object(ObjectKind.USER, user or AGENT_USER)


def image_object(image: str) -> Object:
    """Return the image as an object."""
    return Object(ObjectKind.IMAGE, image)


@dataclass(frozen=True, slots=True)
class Rule:
    """Permission for a principal or a group.

    Attributes:
        subject: a principal's name, or `group:NAME`.
        object: a pattern: an object's text; `role:PATH` includes all roles below PATH, and
            `role:**` is every role; `agent:*`, `user:*` and `image:*` are all; `image:PREFIX*` is
            every image whose name begins so; `*` is every object.
    """

    name: str
    subject: str
    actions: tuple[Action, ...]
    object: str

    def allows(self, action: Action, target: Object) -> bool:
        """Return whether the rule allows its subject `action` on `target`."""
        return action in self.actions and matches(self.object, target)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether an action is allowed, and the name of the rule; empty if it is denied."""

    is_allowed: bool
    rule: str = ""

    def __bool__(self) -> bool:
        return self.is_allowed


DENIED: Final = Decision(False)
AUTH_OFF: Final = Decision(True, "authentication is off")
OWNER: Final = Decision(True, "owner")

ADMIN: Final = "admin"
OPERATOR: Final = "operator"
VIEWER: Final = "viewer"
# Without EXEC, which shows the secrets of tasks.
_OPERATOR_ACTIONS: Final = (
    Action.VIEW,
    Action.READ_OUTPUT,
    Action.READ_FILES,
    Action.KILL,
    Action.TEARDOWN,
    Action.OPERATE_AGENTS,
    Action.CHANGE_ROLES,
    Action.READ_METRICS,
)
BUILTIN_RULES: Final = (
    Rule("admin", f"group:{ADMIN}", tuple(Action), ANY),
    Rule("operator", f"group:{OPERATOR}", _OPERATOR_ACTIONS, ANY),
    Rule("viewer", f"group:{VIEWER}", (Action.VIEW, Action.READ_METRICS), ANY),
)
# Proven by the token of the master's --admin-token-file; always an administrator.
LOCAL_ADMIN: Final = PrincipalName("client/local-admin")
# Members before an administrator changes them.
BUILTIN_GROUPS: Final[Mapping[str, frozenset[str]]] = {
    ADMIN: frozenset({"client/admin"}),
    OPERATOR: frozenset(),
    VIEWER: frozenset(),
}

# The beginning of the SHA-256 of a certificate's public key; the same after each renewal.
KeyId = NewType("KeyId", str)
KEY_DIGITS: Final = 16


@dataclass(frozen=True)
class AccessPolicy:
    """Groups, rules and revoked keys at one moment; immutable.

    Attributes:
        is_on: whether authentication is on; if not, everything is allowed.
        groups: members of each group, including the built-in groups.
        rules: by name, without the built-in ones.
        revoked: keys whose certificates are refused, with a note for people.
    """

    is_on: bool = False
    groups: Mapping[str, frozenset[str]] = field(default_factory=lambda: dict(BUILTIN_GROUPS))
    rules: Mapping[str, Rule] = field(default_factory=dict)
    revoked: Mapping[KeyId, str] = field(default_factory=dict)

    def groups_of(self, principal: Principal) -> frozenset[str]:
        """Return the groups of the policy that the principal is a member of. O(groups)."""
        names = {principal.name, *(f"oidc:{group}" for group in principal.groups)}
        found = {group for group, members in self.groups.items() if names & members}
        return frozenset(found | {ADMIN} if principal.name == LOCAL_ADMIN else found)

    def rules_of(self, principal: Principal) -> tuple[Rule, ...]:
        """Return all rules that apply to the principal. O(groups + rules)."""
        if principal.is_anonymous:
            return ()
        subjects = {principal.name, *(f"group:{group}" for group in self.groups_of(principal))}
        every: Iterable[Rule] = (*BUILTIN_RULES, *self.rules.values())
        return tuple(rule for rule in every if rule.subject in subjects)


def decide(policy: AccessPolicy, principal: Principal, action: Action, target: Object) -> Decision:
    """Decide whether `principal` may do `action` on `target`. O(groups + rules)."""
    return Permissions(policy, principal).decide(action, target)


class Permissions:
    """The permissions of one principal under one policy, for many decisions."""

    def __init__(self, policy: AccessPolicy, principal: Principal) -> None:
        self.principal = principal
        self.is_on = policy.is_on
        self._rules = policy.rules_of(principal) if policy.is_on else ()
        self._decided: dict[tuple[Action, Object], Decision] = {}

    def decide(self, action: Action, target: Object) -> Decision:
        """Decide whether the principal may do `action` on `target`. O(its rules), once."""
        if not self.is_on:
            return AUTH_OFF
        found = self._decided.get((action, target))
        if found is None:
            if len(self._decided) >= MAX_DECIDED:
                self._decided.clear()
            by = (rule for rule in self._rules if rule.allows(action, target))
            rule = next(by, None)
            found = DENIED if rule is None else Decision(True, rule.name)
            self._decided[action, target] = found
        return found

    def allows_somewhere(self, action: Action) -> bool:
        """Return whether the principal may do `action` on any object. O(its rules)."""
        return not self.is_on or any(action in rule.actions for rule in self._rules)

    @property
    def views_all(self) -> tuple[ObjectKind, ...]:
        """The kinds of objects that the principal may view all of. O(its rules), once."""
        every = (role_object(ALL_ROLES), agent_object(ANY), CLUSTER)
        return tuple(each.kind for each in every if self.decide(Action.VIEW, each))

    def owns(self, owner: str) -> bool:
        """Return whether the principal is the owner of that name."""
        return self.is_on and bool(owner) and owner == self.principal.name


def matches(pattern: str, target: Object) -> bool:
    """Return whether the object `target` matches the pattern of a rule."""
    if pattern == ANY:
        return True
    kind, _, name = pattern.partition(":")
    if kind != target.kind.value:
        return False
    if target.kind is ObjectKind.ROLE:
        return name in (ALL_ROLES, target.name) or target.name.startswith(f"{name}/")
    if target.kind is ObjectKind.IMAGE and name.endswith(ANY):
        return target.name.startswith(name.removesuffix(ANY))
    return name in (ANY, target.name) or target.kind is ObjectKind.CLUSTER


def allowed(policy: AccessPolicy, action: Action, target: Object) -> frozenset[str]:
    """Return the principals that a rule allows to do `action` on `target`, by name.

    Groups of an identity provider are not among them. O(rules + members).
    """
    every = (*BUILTIN_RULES, *policy.rules.values())
    subjects = {rule.subject for rule in every if rule.allows(action, target)}
    groups = (subject.removeprefix("group:") for subject in subjects if ":" in subject)
    members = (policy.groups.get(group, frozenset()) for group in groups)
    return frozenset(subjects).union(*members)


def split_object(text: str) -> tuple[ObjectKind, str]:
    """Return kind and name of an object or a pattern; raises InvalidRequest if it is neither."""
    kind, colon, name = text.partition(":")
    for each in ObjectKind:
        if each.value == kind and bool(colon) == (each is not ObjectKind.CLUSTER):
            return each, name
    raise InvalidRequest(
        f"{text[:80]!r} is no object: role:PATH, agent:ID, user:NAME, image:NAME or cluster"
    )
