"""From what a call presents to its caller."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from croupier.master.access.caller import Caller, CredentialKind
from croupier.master.core.access_records import TokenId, TokenKind, TokenRecord
from croupier.master.core.state import State
from croupier.master.core.tokens import Tokens
from croupier.master.services.authentication import AuthenticationFailed, Authenticator, Presented
from croupier.model.access import AccessPolicy
from croupier.model.errors import Unauthenticated, Unavailable
from croupier.model.principal import Principal, PrincipalName
from croupier.model.token import BearerToken
from croupier.net.credentials import make_token
from tests.harness.certificates import HOUR, Authority, authority

NOW_MS = 1_700_000_000_000


class WallClock:
    def __init__(self, wall_ms: int = NOW_MS) -> None:
        self.ms = wall_ms

    def now(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return self.ms


async def verify_other(token: str) -> Caller | None:
    """Verify tokens of the form `a.b.c`."""
    if token.count(".") != 2:
        return None
    if token != "a.b.c":
        raise Unauthenticated("the signature does not match")
    principal = Principal(PrincipalName("oidc/sub"), frozenset({"staff"}))
    return Caller(principal, CredentialKind.OIDC, "sub")


def state_of(held: Tokens) -> State:
    return cast("State", SimpleNamespace(tokens=held, access=AccessPolicy()))


ALICE, ADMIN, JOIN, OLD = (make_token() for _ in range(4))


def record(token: BearerToken, kind: TokenKind, name: str, expires_ms: int | None) -> TokenRecord:
    return TokenRecord(
        TokenId(token.token_id),
        kind,
        PrincipalName(name),
        token.hash.hex(),
        0,
        expires_ms=expires_ms,
    )


def tokens() -> Tokens:
    found = Tokens()
    found.put(record(ALICE, TokenKind.CLIENT, "client/alice", NOW_MS + 1))
    found.put(record(OLD, TokenKind.CLIENT, "client/alice", NOW_MS))
    found.put(record(JOIN, TokenKind.JOIN, "", None))
    return found


def authenticator(held: Tokens | None = None, *, leads: bool = True) -> Authenticator:
    known = held or tokens()
    return Authenticator(
        WallClock(),
        lambda: state_of(known) if leads else None,
        is_on=True,
        trust_domain=lambda: "test",
        admin_token=ADMIN,
        is_mutual=True,
        verify_other=verify_other,
    )


def bearer(text: str) -> Presented:
    return Presented("ipv4:1.2.3.4", (f"Bearer {text}",))


async def test_a_token_makes_its_principal_the_caller() -> None:
    caller = await authenticator().authenticate(bearer(ALICE.text))
    assert caller == Caller(
        Principal(PrincipalName("client/alice")),
        CredentialKind.TOKEN,
        ALICE.token_id,
        NOW_MS + 1,
        "ipv4:1.2.3.4",
        is_redirected=False,
    )


@pytest.mark.parametrize(
    ("text", "is_stored"),
    [(ALICE.text, True), (make_token().text, False), (f"crp_{ALICE.token_id}_{'A' * 43}", False)],
)
async def test_a_follower_redirects_only_tokens_of_the_store(text: str, is_stored: bool) -> None:
    follower = authenticator(leads=False)

    async def find_token(token_id: TokenId) -> TokenRecord | None:
        return tokens().get(token_id)

    follower.find_token = find_token
    presented = replace(bearer(text), names=(b"x",))
    caller = await follower.authenticate(presented)
    assert caller.kind is CredentialKind.UNCHECKED
    assert (caller.is_stored, caller.is_redirected) == (is_stored, is_stored)


async def test_a_follower_without_its_store_redirects_no_token() -> None:
    follower = authenticator(leads=False)

    async def find_token(_: TokenId) -> TokenRecord | None:
        raise Unavailable("no member answers")

    follower.find_token = find_token
    assert not (await follower.authenticate(bearer(ALICE.text))).is_stored


async def test_the_scheme_of_the_metadata_may_be_in_lower_case() -> None:
    caller = await authenticator().authenticate(Presented("", (f"bearer {ALICE.text}",)))
    assert caller.principal.name == "client/alice"


async def test_the_admin_token_is_valid_also_on_a_follower() -> None:
    for leads in (True, False):
        caller = await authenticator(leads=leads).authenticate(bearer(ADMIN.text))
        assert caller.principal.name == "client/local-admin"


async def test_a_join_token_makes_no_principal() -> None:
    caller = await authenticator().authenticate(bearer(JOIN.text))
    assert (caller.kind, caller.principal.name) == (CredentialKind.JOIN, "")


async def test_a_follower_checks_no_token_of_the_store() -> None:
    caller = await authenticator(leads=False).authenticate(bearer(make_token().text))
    assert (caller.kind, caller.principal.name) == (CredentialKind.UNCHECKED, "")


async def test_a_provider_verifies_tokens_that_are_not_ours() -> None:
    caller = await authenticator().authenticate(bearer("a.b.c"))
    assert caller.principal == Principal(PrincipalName("oidc/sub"), frozenset({"staff"}))


WRONG_SECRET = f"crp_{ALICE.token_id}_{make_token().secret}"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ((), "missing"),
        (("",), "malformed"),
        (("Bearer",), "malformed"),
        (("Bearer ",), "malformed"),
        (("Bearer crp_12345678_short",), "malformed"),
        ((f"Basic {ALICE.text}",), "malformed"),
        ((ALICE.text,), "malformed"),
        ((f"Bearer {ALICE.text}", f"Bearer {ALICE.text}"), "malformed"),
        ((f"Bearer {'x' * 10_000}",), "malformed"),
        ((f"Bearer {make_token().text}",), "unknown"),
        ((f"Bearer {WRONG_SECRET}",), "unknown"),
        ((f"Bearer crp_{ADMIN.token_id}_{ALICE.secret}",), "unknown"),
        ((f"Bearer {OLD.text}",), "expired"),
        (("Bearer a.b.d",), "provider"),
    ],
)
async def test_other_tokens_are_refused_without_being_quoted(
    values: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        await authenticator().authenticate(Presented("host", values))
    assert caught.value.reason == reason
    assert not any(secret in str(caught.value) for secret in (ALICE.secret, OLD.secret))


async def test_a_valid_certificate_does_not_help_an_invalid_token(tmp_path: Path) -> None:
    files = authority().issue(tmp_path, "client/bob")
    presented = Presented(
        "", ("Bearer x",), (b"croupier://test/client/bob",), files.cert.read_bytes()
    )
    with pytest.raises(AuthenticationFailed):
        await authenticator().authenticate(presented)


def certified(directory: Path, names: list[bytes], signer: Authority | None = None) -> Presented:
    files = (signer or authority()).issue(directory, "client/bob", valid=(-HOUR, HOUR))
    return Presented("", (), names, files.cert.read_bytes())


async def test_a_certificate_makes_its_principal_the_caller_until_it_expires(
    tmp_path: Path,
) -> None:
    names = [b"localhost", b"croupier://test/agent/a%20b", b"127.0.0.1"]
    clock = WallClock()
    gate = Authenticator(clock, lambda: None, is_on=True, trust_domain=lambda: "test")
    with pytest.raises(AuthenticationFailed, match=r"illegal|must not have"):
        await gate.authenticate(certified(tmp_path, names))
    presented = certified(tmp_path, [b"localhost", b"croupier://test/agent/a1"])
    caller = await gate.authenticate(presented)
    assert (caller.principal.agent_id, caller.kind) == ("a1", CredentialKind.CERTIFICATE)
    assert caller.is_redirected
    assert len(caller.credential_id) == 16
    assert caller.expires_ms is not None
    clock.ms = caller.expires_ms
    with pytest.raises(AuthenticationFailed, match="expired"):
        await gate.authenticate(presented)


@pytest.mark.parametrize(
    "names",
    [
        [],
        [b"localhost"],
        [b"croupier://test"],
        [b"croupier://test/"],
        [b"croupier://other/client/bob"],
        [b"croupier://test/client/bob", b"croupier://test/client/eve"],
        [b"croupier://test/oidc/bob"],
        [b"croupier://test/root/bob"],
        [b"croupier://test/client/b%6Fb"],
        [b"croupier://test/client/"],
        [b"croupier://TEST/client/bob"],
        [b"spiffe://test/client/bob"],
    ],
)
async def test_other_certificates_are_refused(tmp_path: Path, names: list[bytes]) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        await authenticator().authenticate(certified(tmp_path, names))
    assert caught.value.reason == "certificate"


async def test_a_master_without_a_trust_domain_accepts_no_certificate(tmp_path: Path) -> None:
    gate = Authenticator(WallClock(), lambda: state_of(tokens()), is_on=True)
    with pytest.raises(AuthenticationFailed):
        await gate.authenticate(certified(tmp_path, [b"croupier://test/client/bob"]))


async def test_without_authentication_every_caller_is_anonymous() -> None:
    gate = Authenticator(WallClock(), lambda: state_of(tokens()), is_on=False)
    assert (await gate.authenticate(bearer("nonsense"))) == Caller(host="ipv4:1.2.3.4")
