"""Administrators change groups and rules; a known principal can always administer the cluster."""

from __future__ import annotations

import pytest

from croupier.master.core.access_records import (
    ForgetGroup,
    ForgetRevokedKey,
    ForgetRule,
    GroupRecord,
    RevokedKeyRecord,
    RuleRecord,
    TokenId,
)
from croupier.master.core.effects import AccessChanged
from croupier.master.core.policy_commands import (
    MAX_CHANGES,
    AddMember,
    PolicyChange,
    RemoveGroup,
    RemoveMember,
    RemoveRule,
    RestoreKey,
    RevokeKey,
    SetGroup,
    SetRule,
    UpdatePolicy,
)
from croupier.master.core.settings import Settings
from croupier.master.core.token_commands import RevokeToken
from croupier.model.access import (
    BUILTIN_GROUPS,
    CLUSTER,
    AccessPolicy,
    Action,
    KeyId,
    decide,
    role_object,
)
from croupier.model.errors import (
    Conflict,
    CroupierError,
    InvalidRequest,
    NotFound,
    PermissionDenied,
)
from croupier.model.principal import ANONYMOUS, Principal
from tests.harness.secured_world import ADMIN, NOW_MS, SecuredWorld, caller, rule, token

ANNA = SetRule(rule("ads client/anna register role:ads"))


def update(*changes: PolicyChange, by: Principal = ADMIN, now_ms: int = NOW_MS) -> UpdatePolicy:
    return UpdatePolicy(1, changes, now_ms, caller=by)


def test_changes_are_saved_and_survive_a_failover() -> None:
    world = SecuredWorld()
    world.allow(SetGroup("ops", frozenset({"client/olga"})), "r group:ops kill role:ads", ANNA)
    world.allow(AddMember("ops", "oidc:sre"), RemoveRule("ads"), AddMember("viewer", "client/v"))
    assert world.saved[-3:] == [
        GroupRecord("ops", frozenset({"client/olga", "oidc:sre"})),
        GroupRecord("viewer", frozenset({"client/v"})),
        ForgetRule("ads"),
    ]
    before = world.state.access
    world.restart()
    assert world.state.access == before
    assert decide(before, caller("oidc/u", "sre"), Action.KILL, role_object("ads"))


def test_the_shell_learns_of_each_change() -> None:
    world = SecuredWorld()
    world.allow(ANNA)
    assert world.changed == [AccessChanged()]
    world.allow(ANNA)
    assert world.changed == [AccessChanged()], "nothing has changed"


def test_a_dry_run_answers_the_policy_and_changes_nothing() -> None:
    world = SecuredWorld()
    answer = world.ask(UpdatePolicy(1, (ANNA,), NOW_MS, dry_run=True, caller=ADMIN))
    assert isinstance(answer, AccessPolicy)
    assert answer.rules == {"ads": ANNA.rule}
    assert not world.state.access.rules
    assert not world.saved
    assert not world.changed


def test_all_changes_are_made_or_none() -> None:
    world = SecuredWorld()
    assert isinstance(world.refused(update(ANNA, RemoveRule("none"))), NotFound)
    assert not world.state.access.rules


def test_a_builtin_group_gets_its_members_back() -> None:
    world = SecuredWorld(AddMember("admin", "client/bob"))
    world.allow(RemoveMember("admin", "client/bob"))
    assert world.saved[-1] == ForgetGroup("admin")
    assert world.state.access.groups == BUILTIN_GROUPS


@pytest.mark.parametrize("by", [ANONYMOUS, caller("anna"), caller("agent/admin")])
def test_only_administrators_change_the_policy(by: Principal) -> None:
    world = SecuredWorld(ANNA)
    assert isinstance(world.refused(update(RemoveRule("ads"), by=by)), PermissionDenied)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (SetGroup("a/b", frozenset()), InvalidRequest),
        (SetGroup("a", frozenset({"bob"})), InvalidRequest),
        (SetGroup("admin", frozenset()), Conflict),
        (RemoveMember("admin", "client/admin"), Conflict),
        (RemoveMember("admin", "client/bob"), NotFound),
        (RemoveMember("none", "client/bob"), NotFound),
        (AddMember("none", "client/bob"), NotFound),
        (AddMember("viewer", "group:ops"), InvalidRequest),
        (RemoveGroup("admin"), InvalidRequest),
        (RemoveGroup("none"), NotFound),
        (RemoveGroup("ops"), Conflict),
        (SetRule(rule("r group:none view role:a")), Conflict),
        (SetRule(rule("viewer client/x view role:a")), InvalidRequest),
        (RemoveRule("admin"), NotFound),
    ],
)
def test_bad_changes_are_refused(change: PolicyChange, error: type[CroupierError]) -> None:
    world = SecuredWorld(SetGroup("ops", frozenset()), "r group:ops view role:a")
    assert isinstance(world.refused(update(change)), error)


def test_a_call_is_bounded() -> None:
    world = SecuredWorld()
    assert isinstance(world.refused(update()), InvalidRequest)
    assert isinstance(world.refused(update(*[ANNA] * (MAX_CHANGES + 1))), InvalidRequest)


def test_the_policy_is_bounded() -> None:
    world = SecuredWorld(settings=Settings(groups=1, group_members=2, rules=1))
    world.allow(SetGroup("a", frozenset({"client/1", "client/2"})), ANNA)
    assert isinstance(world.refused(update(SetGroup("b", frozenset()))), Conflict)
    assert isinstance(world.refused(update(AddMember("a", "client/3"))), Conflict)
    assert isinstance(world.refused(update(SetRule(rule("x client/x view role:x")))), Conflict)
    long = frozenset(f"client/{number:0200}" for number in range(900))
    world = SecuredWorld()
    assert isinstance(world.refused(update(SetGroup("a", long))), Conflict)


class TestTheLastAdministrator:
    def test_cannot_remove_itself(self) -> None:
        world = SecuredWorld(AddMember("admin", "client/bob"))
        error = world.refused(update(RemoveMember("admin", "client/admin")))
        assert isinstance(error, Conflict)
        assert "--admin-token-file" in str(error)

    def test_can_if_another_has_a_token(self) -> None:
        world = SecuredWorld(AddMember("admin", "client/bob"))
        world.add_token(token("0000000b", "bob", expires_ms=NOW_MS + 1000))
        late = update(RemoveMember("admin", "client/admin"), now_ms=NOW_MS + 1000)
        assert isinstance(world.refused(late), Conflict), "it has expired"
        world.allow(RemoveMember("admin", "client/admin"))
        assert not decide(world.state.access, ADMIN, Action.ADMINISTER, CLUSTER)

    def test_cannot_lose_its_token_by_itself(self) -> None:
        world = SecuredWorld()
        world.add_token(token("0000000a", "admin"))
        own = TokenId("0000000a")
        error = world.refused(RevokeToken(1, own, NOW_MS, ADMIN, own))
        assert isinstance(error, Conflict)
        assert "no known principal" in str(error)
        # Proven by a certificate, or by another token, the same administrator can.
        world.ask(RevokeToken(1, own, NOW_MS, ADMIN))
        assert world.state.tokens.get(own) is None

    def test_can_be_removed_by_the_local_administrator(self) -> None:
        world = SecuredWorld(AddMember("admin", "client/bob"))
        change = update(RemoveMember("admin", "client/admin"), by=caller("local-admin"))
        assert not isinstance(world.ask(change), CroupierError)


def test_a_rule_may_name_another_administrator() -> None:
    world = SecuredWorld("chief client/carl administer cluster")
    world.add_token(token("0000000c", "carl"))
    world.allow(SetGroup("admin", frozenset({"oidc:admins"})))
    world.ask(update(ANNA, by=caller("carl")))
    assert RuleRecord(ANNA.rule) in world.saved


def test_without_authentication_a_policy_is_prepared_by_anybody() -> None:
    world = SecuredWorld(is_on=False)
    world.ask(update(ANNA, by=ANONYMOUS))
    assert world.state.access.rules == {"ads": ANNA.rule}
    error = world.ask(update(SetGroup("admin", frozenset()), by=ANONYMOUS))
    assert isinstance(error, Conflict), "no principal could administer once it is on"


def test_a_revoked_key_survives_a_failover_until_it_is_restored() -> None:
    world, key_id = SecuredWorld(), KeyId("0123456789abcdef")
    world.allow(RevokeKey(key_id, "client/anna: stolen"))
    assert world.changed == [AccessChanged((key_id,))]
    world.restart()
    assert world.state.access.revoked == {key_id: "client/anna: stolen"}
    world.allow(RestoreKey(key_id))
    saved = [RevokedKeyRecord(key_id, "client/anna: stolen"), ForgetRevokedKey(key_id)]
    assert world.saved[-2:] == saved
    assert world.changed[-1] == AccessChanged()
    assert not world.state.access.revoked


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (RevokeKey(KeyId("0123456789ABCDEF")), InvalidRequest),
        (RevokeKey(KeyId("0123456789abcdef0")), InvalidRequest),
        (RevokeKey(KeyId("0123456789abcdef"), "a\x1bb"), InvalidRequest),
        (RestoreKey(KeyId("0123456789abcdef")), NotFound),
    ],
)
def test_malformed_keys_are_refused(change: PolicyChange, error: type[CroupierError]) -> None:
    assert isinstance(SecuredWorld().refused(update(change)), error)
