"""Who may do what: the decision is a table of rules, and everything else is denied."""

from __future__ import annotations

import pytest

from croupier.model.access import (
    ADMIN,
    BUILTIN_GROUPS,
    CLUSTER,
    LOCAL_ADMIN,
    AccessPolicy,
    Action,
    Decision,
    Object,
    Permissions,
    Rule,
    allowed,
    decide,
    matches,
    role_object,
    user_object,
)
from croupier.model.access_checks import (
    check_action,
    check_member,
    check_rule,
    check_subject,
    parse_action,
)
from croupier.model.errors import InvalidRequest
from croupier.model.principal import (
    ANONYMOUS,
    MAX_NAME_BYTES,
    Principal,
    PrincipalKind,
    check_principal,
    principal_name,
)
from tests.harness.secured_world import caller, rule

GROUPS = {
    **BUILTIN_GROUPS,
    "ops": frozenset({"client/olga", "oidc:sre"}),
    "operator": frozenset({"client/otto"}),
    "viewer": frozenset({"client/vera"}),
}
RULES = [
    rule("ads client/anna register,kill role:ads"),
    rule("users client/anna run-as user:nobody"),
    rule("default client/dora register role:*"),
    rule("all group:ops view,register role:**"),
    rule("drain group:ops operate-agents agent:a1"),
    rule("agents client/anna view agent:*"),
    rule("any client/root run-as user:*"),
    rule("own client/root run-as user:(agent)"),
    rule("cluster client/anna read-metrics cluster"),
    rule("star client/star view *"),
    rule("team client/anna launch-image image:docker://registry.org/team/*"),
    rule("one client/dora launch-image image:dir:/srv/root"),
    rule("images client/root launch-image image:*"),
]
POLICY = AccessPolicy(True, GROUPS, {each.name: each for each in RULES})


@pytest.mark.parametrize(
    ("who", "action", "target", "by"),
    [
        ("anna", "register", "role:ads", "ads"),
        ("anna", "register", "role:ads/prod", "ads"),
        ("anna", "register", "role:adsx", ""),
        ("anna", "register", "role:*", ""),
        ("anna", "view", "role:ads", ""),
        ("anna", "kill", "role:ads/prod", "ads"),
        ("anna", "run-as", "user:nobody", "users"),
        ("anna", "run-as", "user:root", ""),
        ("anna", "view", "agent:any", "agents"),
        ("anna", "operate-agents", "agent:any", ""),
        ("anna", "read-metrics", "cluster", "cluster"),
        ("anna", "administer", "cluster", ""),
        ("dora", "register", "role:*", "default"),
        ("dora", "register", "role:ads", ""),
        ("olga", "register", "role:ads/prod/x", "all"),
        ("olga", "register", "role:*", "all"),
        ("olga", "operate-agents", "agent:a1", "drain"),
        ("olga", "operate-agents", "agent:a12", ""),
        ("root", "run-as", "user:anybody", "any"),
        ("star", "view", "cluster", "star"),
        ("star", "view", "role:x", "star"),
        ("star", "kill", "role:x", ""),
        ("admin", "administer", "cluster", "admin"),
        ("admin", "run-as", "user:root", "admin"),
        ("local-admin", "administer", "cluster", "admin"),
        ("otto", "kill", "role:ads", "operator"),
        ("otto", "operate-agents", "agent:a1", "operator"),
        ("otto", "read-files", "role:ads", "operator"),
        ("otto", "exec", "role:ads", ""),
        ("admin", "exec", "role:ads", "admin"),
        ("otto", "register", "role:ads", ""),
        ("otto", "run-as", "user:nobody", ""),
        ("otto", "administer", "cluster", ""),
        ("vera", "view", "role:ads", "viewer"),
        ("vera", "read-metrics", "cluster", "viewer"),
        ("vera", "read-output", "role:ads", ""),
        ("vera", "kill", "role:ads", ""),
        ("nobody", "view", "role:ads", ""),
        ("anna", "launch-image", "image:docker://registry.org/team/x:1", "team"),
        ("anna", "launch-image", "image:docker://registry.org/other/x", ""),
        ("anna", "launch-image", "image:dir:/srv/root", ""),
        ("dora", "launch-image", "image:dir:/srv/root", "one"),
        ("dora", "launch-image", "image:dir:/srv/root2", ""),
        ("root", "launch-image", "image:oci:/a/b:latest", "images"),
        ("star", "launch-image", "image:dir:/srv/root", ""),
        ("admin", "launch-image", "image:dir:/srv/root", "admin"),
        ("otto", "launch-image", "image:dir:/srv/root", ""),
        ("agent/a1", "view", "role:ads", ""),
        ("master/admin", "administer", "cluster", ""),
        ("oidc/admin", "administer", "cluster", ""),
    ],
)
def test_decisions(who: str, action: str, target: str, by: str) -> None:
    expected = Decision(bool(by), by)
    assert decide(POLICY, caller(who), parse_action(action), Object.parse(target)) == expected


def test_groups_of_an_identity_provider_are_members() -> None:
    target = role_object("ads")
    assert decide(POLICY, caller("oidc/u1", "sre"), Action.VIEW, target)
    assert not decide(POLICY, caller("oidc/u1", "dev"), Action.VIEW, target)
    # A provider's group does not make its members one of the policy's own.
    assert not decide(POLICY, caller("oidc/u1", "admin", "ops"), Action.VIEW, target)


def test_without_authentication_everything_is_allowed() -> None:
    assert decide(AccessPolicy(), ANONYMOUS, Action.ADMINISTER, CLUSTER)
    assert Permissions(AccessPolicy(), ANONYMOUS).allows_somewhere(Action.KILL)


def test_nobody_without_a_name_is_allowed_anything() -> None:
    policy = AccessPolicy(True, rules={"r": Rule("r", "", tuple(Action), "*")})
    assert not decide(policy, ANONYMOUS, Action.VIEW, CLUSTER)
    assert not Permissions(policy, ANONYMOUS).owns("")


@pytest.mark.parametrize(
    ("who", "kinds"),
    [("anna", ["agent"]), ("olga", ["role"]), ("vera", ["role", "agent", "cluster"])],
)
def test_kinds_that_a_principal_may_view_all_of(who: str, kinds: list[str]) -> None:
    views_all = Permissions(POLICY, caller(who)).views_all
    assert [each.value for each in views_all] == kinds


def test_an_owner_is_exactly_the_principal_of_that_name() -> None:
    permissions = Permissions(POLICY, caller("anna"))
    assert permissions.owns("client/anna")
    assert not permissions.owns("oidc/anna")
    assert not permissions.owns("")


@pytest.mark.parametrize(
    ("pattern", "target", "fits"),
    [
        ("*", "cluster", True),
        ("role:a", "role:a", True),
        ("role:a", "role:a/b", True),
        ("role:a/b", "role:a", False),
        ("role:*", "role:a", False),
        ("role:**", "role:*", True),
        ("agent:*", "agent:x", True),
        ("agent:*", "user:x", False),
        ("user:x", "user:xy", False),
        ("cluster", "cluster", True),
        ("cluster", "role:cluster", False),
    ],
)
def test_patterns(pattern: str, target: str, fits: bool) -> None:
    assert matches(pattern, Object.parse(target)) == fits


def test_a_task_without_a_user_runs_as_the_agent() -> None:
    assert decide(POLICY, caller("root"), Action.RUN_AS, user_object(""))
    assert not decide(POLICY, caller("anna"), Action.RUN_AS, user_object(""))


@pytest.mark.parametrize(
    "text",
    [
        "admin client/x view role:a",
        "r anna view role:a",
        "r group: view role:a",
        "r client/ view role:a",
        "r role:a view role:a",
        "r client/x view role:",
        "r client/x view role",
        "r client/x view role:a/../b",
        "r client/x view agent:a/b",
        "r client/x view cluster:x",
        "r client/x view agent:**",
        "r client/x view agent:a*",
        "r client/x register agent:a",
        "r client/x run-as role:a",
        "r client/x view,administer role:a",
        "r client/x launch-image user:a",
        "r client/x view image:dir:/a",
        "r client/x launch-image image:",
        "r client/x launch-image image:a",
        "r client/x launch-image image:docker://registry.org*",
        "r client/x launch-image image:docker://*/x",
        ". client/x view role:a",
    ],
)
def test_malformed_rules_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        check_rule(rule(text))


@pytest.mark.parametrize(
    "text", ["role:ops,agent:*", "role:ops,dev", "role:a:b", "agent:a,b", "agent:a:b", "user:a,b"]
)
def test_a_list_of_objects_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="a rule with a name of its own for each object"):
        check_rule(rule(f"r client/x {'run-as' if text.startswith('user') else 'view'} {text}"))


def test_a_stored_rule_with_a_comma_still_allows() -> None:
    assert matches("role:a,b", Object.parse("role:a,b"))


def test_a_rule_has_an_action() -> None:
    with pytest.raises(InvalidRequest, match="no action"):
        check_rule(Rule("r", "client/x", (), "*"))


@pytest.mark.parametrize("each", RULES, ids=str)
def test_legal_rules_are_accepted(each: Rule) -> None:
    assert check_rule(each) == each


@pytest.mark.parametrize("text", ["client/x", "oidc/https://a.b/c", "oidc:a/b", "agent/a1"])
def test_members(text: str) -> None:
    assert check_member(text) == text


@pytest.mark.parametrize("text", ["", "x", "group:ops", "oidc:", "client:x", "oidc:a b"])
def test_malformed_members(text: str) -> None:
    with pytest.raises(InvalidRequest):
        check_member(text)


@pytest.mark.parametrize("text", ["oidc:ops", "group:a/b", "Client/x", "client/a b"])
def test_malformed_subjects(text: str) -> None:
    with pytest.raises(InvalidRequest):
        check_subject(text)


def test_an_action_takes_objects_of_its_kind() -> None:
    check_action(Action.KILL, role_object("a"))
    with pytest.raises(InvalidRequest, match="it takes role"):
        check_action(Action.KILL, CLUSTER)
    with pytest.raises(InvalidRequest, match="no action"):
        parse_action("launch")


@pytest.mark.parametrize(
    ("action", "target"),
    [(action, target) for action in Action for target in ("role:ads/x", "agent:a1", "cluster")],
)
def test_those_allowed_are_those_that_a_decision_allows(action: Action, target: str) -> None:
    found = allowed(POLICY, action, Object.parse(target))
    for name in ("anna", "dora", "olga", "root", "star", "admin", "otto", "vera", "oidc/u1"):
        decision = decide(POLICY, caller(name), action, Object.parse(target))
        assert (caller(name).name in found) == decision.is_allowed


def test_the_local_administrator_cannot_be_removed() -> None:
    policy = AccessPolicy(True, {**GROUPS, ADMIN: frozenset({"client/x"})})
    assert decide(policy, Principal(LOCAL_ADMIN), Action.ADMINISTER, CLUSTER)
    assert ADMIN in policy.groups_of(Principal(LOCAL_ADMIN))


# Names of principals.


@pytest.mark.parametrize(
    "text", ["client/alice", "agent/a-1.x", "master/m1", "oidc/https://id.example/u|7"]
)
def test_legal_names(text: str) -> None:
    assert check_principal(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "alice",
        "client/",
        "/alice",
        "user/alice",
        "Client/alice",
        "client/a/b",
        "client/a b",
        "client/..",
        "oidc/a b",
        "oidc/a\nb",
        "client/" + "x" * MAX_NAME_BYTES,
    ],
)
def test_illegal_names(text: str) -> None:
    with pytest.raises(InvalidRequest):
        check_principal(text)


def test_only_an_agent_has_an_agent_id() -> None:
    assert Principal(principal_name(PrincipalKind.AGENT, "a1")).agent_id == "a1"
    assert Principal(principal_name(PrincipalKind.CLIENT, "a1")).agent_id is None
    assert ANONYMOUS.agent_id is None


def test_as_text() -> None:
    assert str(ANONYMOUS) == "anonymous"
    assert ANONYMOUS.is_anonymous
    assert str(Principal(principal_name(PrincipalKind.CLIENT, "x"))) == "client/x"
