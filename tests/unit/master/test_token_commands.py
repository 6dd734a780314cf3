"""Malformed tokens and keys, and bounds; `scenarios/tokens.txt` and `policy.txt` tell the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.core.access_records import TokenId, TokenKind, TokenRecord
from croupier.master.core.policy_commands import (
    MAX_CHANGES,
    PolicyChange,
    RevokeKey,
    SetGroup,
    SetRule,
    UpdatePolicy,
)
from croupier.master.core.token_commands import CreateToken, JoinAgent
from croupier.model.access import KeyId
from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.ids import AgentId
from croupier.model.principal import PrincipalName
from tests.harness.secured_world import ADMIN, NOW_MS, SecuredWorld, rule, token

ONE, TWO, JOIN = TokenId("00000001"), TokenId("00000002"), TokenId("0000000f")
HOUR_MS = 3_600_000
JOINING = JoinAgent(1, JOIN, AgentId("a1"), TokenId("000000a1"), "000000a1" * 8, {}, NOW_MS)


def test_the_hash_of_a_token_is_in_no_representation() -> None:
    made = token(ONE, "anna")
    assert made.hash not in repr(made)
    assert made.hash not in repr(CreateToken(1, made, NOW_MS))
    assert JOINING.token_hash not in repr(JOINING)


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
def test_malformed_tokens_are_refused(made: TokenRecord) -> None:
    error = SecuredWorld().refused(CreateToken(1, made, NOW_MS, ADMIN))
    assert isinstance(error, InvalidRequest)


def test_an_administrator_gives_an_agent_its_token() -> None:
    world = SecuredWorld()
    made = token(ONE, "agent/a1", kind=TokenKind.AGENT)
    world.add_token(made)
    again = replace(token(TWO, "agent/a1", kind=TokenKind.AGENT))
    assert isinstance(world.refused(CreateToken(1, again, NOW_MS, ADMIN)), Conflict)


def test_agents_have_names_of_their_own() -> None:
    assert token(ONE, "agent/a1", kind=TokenKind.AGENT).agent_id == "a1"
    assert token(ONE, "agent/a1").agent_id is None
    assert token(ONE, "agent/a1").principal == PrincipalName("agent/a1")


@pytest.mark.parametrize(
    "command", [replace(JOINING, agent_id=AgentId("")), replace(JOINING, token_hash="ff")]
)
def test_malformed_joins_are_refused(command: JoinAgent) -> None:
    world = SecuredWorld()
    world.add_token(token(JOIN, kind=TokenKind.JOIN))
    assert isinstance(world.refused(command), InvalidRequest)


def refused(*changes: PolicyChange) -> Exception:
    return SecuredWorld().refused(UpdatePolicy(1, changes, NOW_MS, caller=ADMIN))


def test_changes_of_the_policy_are_bounded() -> None:
    change = SetRule(rule("ads client/anna register role:ads"))
    assert isinstance(refused(), InvalidRequest)
    assert isinstance(refused(*[change] * (MAX_CHANGES + 1)), InvalidRequest)
    long = frozenset(f"client/{number:0200}" for number in range(900))
    assert isinstance(refused(SetGroup("a", long)), Conflict)


def test_the_note_of_a_key_is_printable() -> None:
    assert isinstance(refused(RevokeKey(KeyId("0123456789abcdef"), "a\x1bb")), InvalidRequest)
