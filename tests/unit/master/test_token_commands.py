"""Tokens are made and revoked; agents join with join tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from croupier.master.core.access_records import ForgetToken, TokenId, TokenKind, TokenRecord
from croupier.master.core.agent_commands import MarkGone, OperateAgent
from croupier.master.core.effects import AccessChanged
from croupier.master.core.settings import Settings
from croupier.master.core.token_commands import CreateToken, JoinAgent, RevokeToken
from croupier.model.attributes import parse_attributes
from croupier.model.errors import (
    Conflict,
    CroupierError,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    Removed,
    Unauthenticated,
)
from croupier.model.ids import AgentId
from croupier.model.principal import ANONYMOUS, Principal, PrincipalName
from tests.harness.secured_world import ADMIN, NOW_MS, SecuredWorld, caller, token

ONE, TWO, JOIN = TokenId("00000001"), TokenId("00000002"), TokenId("0000000f")
HOUR_MS = 3_600_000


def join(
    agent_id: str = "a1",
    token_id: str = "000000a1",
    attributes: str = "",
    now_ms: int = NOW_MS,
    join_token: str = JOIN,
) -> JoinAgent:
    return JoinAgent(
        1,
        TokenId(join_token),
        AgentId(agent_id),
        TokenId(token_id),
        token_id * 8,
        parse_attributes(attributes),
        now_ms,
    )


def joinable(settings: Settings | None = None, **more: Any) -> SecuredWorld:
    """Return a world with a join token."""
    world = SecuredWorld(settings=settings)
    world.add_token(token(JOIN, kind=TokenKind.JOIN, **more))
    return world


class TestCreate:
    def test_a_token_is_saved_with_its_creator_and_survives_a_failover(self) -> None:
        world = SecuredWorld()
        made = world.add_token(token(ONE, "anna", description="for Anna", created_ms=5))
        assert (made.created_by, made.created_ms) == ("client/admin", NOW_MS)
        assert made in world.saved
        world.restart()
        assert list(world.state.tokens) == [made]

    def test_its_hash_is_in_no_representation(self) -> None:
        made = token(ONE, "anna")
        assert made.hash not in repr(made)
        assert made.hash not in repr(CreateToken(1, made, NOW_MS))
        assert "000000a1" * 8 not in repr(join())

    def test_a_repeated_command_changes_nothing(self) -> None:
        world = SecuredWorld()
        made = world.add_token(token(ONE, "anna"))
        before = len(world.saved)
        assert world.ask(CreateToken(1, token(ONE, "anna"), NOW_MS + 5, ADMIN)) == made
        assert len(world.saved) == before
        other = replace(token(ONE, "bob"), hash="f" * 64)
        assert isinstance(world.refused(CreateToken(1, other, NOW_MS, ADMIN)), Conflict)

    @pytest.mark.parametrize(
        "made",
        [
            token("1", "anna"),
            token("0000000G", "anna"),
            token(ONE, "anna", hash="f" * 63),
            token(ONE, "anna", hash="F" * 64),
            token(ONE, "anna", expires_ms=NOW_MS),
            token(ONE, "anna", expires_ms=10**15),
            token(ONE, "anna", uses_left=1),
            token(ONE, "anna", attributes=("rack:r1",)),
            token(ONE, "anna", description="x" * 257),
            token(ONE, "anna", description="a\nb"),
            token(ONE, "agent/a1"),
            token(ONE, "oidc/u"),
            token(ONE, "local-admin"),
            token(ONE),
            token(ONE, "anna", kind=TokenKind.AGENT),
            token(ONE, "agent/a1", kind=TokenKind.AGENT, expires_ms=NOW_MS + HOUR_MS),
            token(ONE, "anna", kind=TokenKind.JOIN),
            token(ONE, kind=TokenKind.JOIN, uses_left=0),
            token(ONE, kind=TokenKind.JOIN, attributes=("rack",)),
            token(ONE, kind=TokenKind.JOIN, attributes=("rack:r1;zone:a",)),
            token(ONE, kind=TokenKind.JOIN, attributes=("n:1",) * 65),
        ],
    )
    def test_malformed_tokens_are_refused(self, made: TokenRecord) -> None:
        error = SecuredWorld().refused(CreateToken(1, made, NOW_MS, ADMIN))
        assert isinstance(error, InvalidRequest)

    @pytest.mark.parametrize("by", [ANONYMOUS, caller("anna"), caller("agent/a1")])
    def test_only_administrators_create_tokens(self, by: Principal) -> None:
        error = SecuredWorld().refused(CreateToken(1, token(ONE, "anna"), NOW_MS, by))
        assert isinstance(error, PermissionDenied)

    def test_tokens_are_bounded_and_expired_ones_are_forgotten(self) -> None:
        world = SecuredWorld(settings=Settings(tokens=2))
        world.add_token(token(ONE, "anna", expires_ms=NOW_MS + HOUR_MS))
        world.add_token(token(TWO, "bob"))
        third = CreateToken(1, token("00000003", "carl"), NOW_MS, ADMIN)
        assert isinstance(world.refused(third), Conflict)
        world.ask(replace(third, now_ms=NOW_MS + HOUR_MS))
        assert ForgetToken(ONE) in world.saved
        assert not world.changed, "the shell ends streams at the expiry itself"
        assert [each.token_id for each in world.state.tokens] == [TWO, "00000003"]

    def test_a_spent_join_token_makes_room(self) -> None:
        world = joinable(Settings(tokens=1), uses_left=1)
        world.ask(join())
        world.add_token(token(ONE, "anna"))
        assert world.state.tokens.get(JOIN) is None


class TestRevoke:
    def test_a_revoked_token_is_forgotten_and_the_shell_told(self) -> None:
        world = SecuredWorld()
        made = world.add_token(token(ONE, "anna"))
        assert world.ask(RevokeToken(1, ONE, NOW_MS, ADMIN)) == made
        assert world.saved[-1] == ForgetToken(ONE)
        assert world.changed == [AccessChanged((ONE,))]
        world.restart()
        assert not list(world.state.tokens)
        assert isinstance(world.refused(RevokeToken(1, ONE, NOW_MS, ADMIN)), NotFound)

    def test_a_principal_revokes_its_own_tokens_only(self) -> None:
        world = SecuredWorld()
        world.add_token(token(ONE, "anna"))
        world.add_token(token(TWO, "bob"))
        world.add_token(token(JOIN, kind=TokenKind.JOIN))
        for other in (TWO, JOIN, TokenId("0000000e")):
            for by in (caller("anna"), ANONYMOUS):
                error = world.refused(RevokeToken(1, other, NOW_MS, by))
                assert isinstance(error, PermissionDenied), "even if there is none"
        world.ask(RevokeToken(1, ONE, NOW_MS, caller("anna"), ONE))
        assert world.state.tokens.get(ONE) is None


class TestJoin:
    def test_an_agent_gets_a_token_bound_to_its_id(self) -> None:
        world = joinable(attributes=("rack:r1",))
        answer = world.ask(join(attributes="rack:r1;zone:a"))
        assert isinstance(answer, TokenRecord)
        assert (answer.principal, answer.kind) == ("agent/a1", TokenKind.AGENT)
        assert answer.created_by == f"join:{JOIN}"
        assert answer.attributes == ("rack:r1",)
        assert answer in world.saved
        assert world.state.tokens.of_agent(AgentId("a1")) == answer
        world.restart()
        assert world.state.tokens.of_agent(AgentId("a1")) == answer

    def test_uses_are_counted_and_a_repeated_call_uses_none(self) -> None:
        world = joinable(uses_left=2)
        for _ in range(3):
            assert isinstance(world.ask(join()), TokenRecord)
        world.ask(join("a2", "000000a2"))
        spent = world.state.tokens.get(JOIN)
        assert spent is not None
        assert spent.uses_left == 0
        assert isinstance(world.refused(join("a3", "000000a3")), Unauthenticated)
        # An answer that was lost.
        assert isinstance(world.ask(join("a2", "000000a2")), TokenRecord)

    def test_a_join_token_expires(self) -> None:
        world = joinable(expires_ms=NOW_MS + HOUR_MS)
        error = world.refused(join(now_ms=NOW_MS + HOUR_MS))
        assert isinstance(error, Unauthenticated)
        assert isinstance(world.ask(join(now_ms=NOW_MS + HOUR_MS - 1)), TokenRecord)

    @pytest.mark.parametrize("attributes", ["", "rack:r2", "zone:r1", "rack:r11"])
    def test_a_join_token_is_for_some_attributes(self, attributes: str) -> None:
        world = joinable(attributes=("rack:r1",))
        assert isinstance(world.refused(join(attributes=attributes)), PermissionDenied)

    def test_the_agent_keeps_the_attributes_that_it_joined_with(self) -> None:
        world = joinable(attributes=("rack:r1",))
        world.ask(join(attributes="rack:r1"))
        world.as_principal("agent/a1")
        session = world.agent("cpus:1", agent_id="a1", attributes="rack:r2")
        assert isinstance(world.error_of(session), PermissionDenied)
        session = world.agent("cpus:1", agent_id="a1", attributes="rack:r1;zone:b")
        assert world.error_of(session) is None

    def test_an_id_is_bound_once(self) -> None:
        world = joinable()
        world.ask(join())
        assert isinstance(world.refused(join(token_id="000000a2")), Conflict)
        assert isinstance(world.refused(join("a2")), Conflict), "the token is another agent's"

    def test_nobody_joins_under_the_id_of_an_agent_with_a_certificate(self) -> None:
        world = joinable()
        world.secured_agent("a1")
        assert isinstance(world.refused(join()), Conflict)
        world.restart()
        assert isinstance(world.refused(join()), Conflict)

    def test_an_agent_of_before_authentication_joins(self) -> None:
        world = SecuredWorld(is_on=False)
        world.agent("cpus:1", agent_id="a1")
        world.state.settings = replace(world.state.settings, auth=True)
        world.restart()
        world.add_token(token(JOIN, kind=TokenKind.JOIN))
        assert isinstance(world.ask(join()), TokenRecord)
        assert world.error_of(world.secured_agent("a1")) is None

    def test_an_agent_joins_again_after_its_token_was_revoked(self) -> None:
        world = joinable()
        world.ask(join())
        session = world.secured_agent("a1")
        world.ask(RevokeToken(1, TokenId("000000a1"), NOW_MS, ADMIN))
        assert isinstance(world.error_of(session), Unauthenticated)
        world.restart()
        assert isinstance(world.ask(join(token_id="000000a2")), TokenRecord)

    def test_an_agent_that_was_declared_gone_loses_its_token_for_good(self) -> None:
        world = joinable()
        world.ask(join())
        world.secured_agent("a1")
        world.ask(OperateAgent(1, "a1", MarkGone(), caller=ADMIN))
        assert world.state.tokens.of_agent(AgentId("a1")) is None
        assert AccessChanged((TokenId("000000a1"),)) in world.changed
        assert isinstance(world.refused(join()), Removed)

    @pytest.mark.parametrize(
        ("command", "error"),
        [
            (join(join_token=ONE), Unauthenticated),
            (join(join_token="0000000e"), Unauthenticated),
            (join(agent_id=""), InvalidRequest),
            (join(agent_id="../a"), InvalidRequest),
            (join(token_id="xyz"), InvalidRequest),
            (replace(join(), token_hash="ff"), InvalidRequest),
        ],
    )
    def test_bad_calls_are_refused(self, command: JoinAgent, error: type[CroupierError]) -> None:
        world = joinable()
        world.add_token(token(ONE, "anna"))
        assert isinstance(world.refused(command), error)

    def test_tokens_of_agents_are_bounded(self) -> None:
        world = joinable(Settings(agent_tokens=2))
        world.ask(join())
        world.ask(join("a2", "000000a2"))
        world.secured_agent("a1")
        world.ask(join("a3", "000000a3"))
        assert world.state.tokens.of_agent(AgentId("a2")) is None, "a2 is unknown"
        world.secured_agent("a3")
        assert isinstance(world.refused(join("a2", "000000a2")), Conflict)

    def test_an_administrator_gives_an_agent_its_token(self) -> None:
        world = SecuredWorld()
        made = token(ONE, "agent/a1", kind=TokenKind.AGENT)
        world.add_token(made)
        again = replace(token(TWO, "agent/a1", kind=TokenKind.AGENT))
        assert isinstance(world.refused(CreateToken(1, again, NOW_MS, ADMIN)), Conflict)


def test_agents_have_names_of_their_own() -> None:
    assert token(ONE, "agent/a1", kind=TokenKind.AGENT).agent_id == "a1"
    assert token(ONE, "agent/a1").agent_id is None
    assert token(ONE, "agent/a1").principal == PrincipalName("agent/a1")
