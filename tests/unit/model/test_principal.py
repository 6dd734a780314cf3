"""Names of principals."""

from __future__ import annotations

import pytest

from croupier.model.errors import InvalidRequest
from croupier.model.principal import (
    ANONYMOUS,
    MAX_NAME_BYTES,
    Principal,
    PrincipalKind,
    check_principal,
    principal_name,
)


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
