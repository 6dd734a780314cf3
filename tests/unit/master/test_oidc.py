"""Tokens of an identity provider: which are valid, and what callers can make the master do."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from croupier.master.access.caller import CredentialKind
from croupier.master.flags import OidcFlags
from croupier.master.oidc import (
    FRESH_S,
    LEAST_S,
    MOST_S,
    SKEW_S,
    Provider,
    caller_of,
    key_id_of,
    keys_of,
)
from croupier.model.errors import InvalidRequest, Unauthenticated, Unavailable
from croupier.process.clock import SystemClock
from tests.harness.eventually import eventually
from tests.harness.identity_provider import (
    AUDIENCE,
    IdentityProvider,
    ec_key,
    identity_provider,
    public_jwk,
    rsa_key,
)

EXPECTED = OidcFlags(oidc_issuer="https://login", oidc_audience=AUDIENCE)
NOW = 1_700_000_000.0
GOOD: dict[str, Any] = {"iss": "https://login", "aud": AUDIENCE, "sub": "alice", "exp": NOW + 300}


class Clock(SystemClock):
    """A clock that a test moves on."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def now(self) -> float:
        return super().now() + self.passed_s


class Setup:
    """A provider and a verifier of its tokens."""

    def __init__(self, provider: IdentityProvider) -> None:
        self.provider, self.clock = provider, Clock()
        expected = OidcFlags(oidc_issuer=provider.issuer, oidc_audience=AUDIENCE)
        self.verifier = Provider(expected, self.clock)

    async def refusal(self, token: str) -> str:
        """Return why a token is refused."""
        with pytest.raises((Unauthenticated, Unavailable)) as refused:
            await self.verifier.verify(token)
        return f"{type(refused.value).__name__}: {refused.value}"


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    async with identity_provider() as provider:
        yield Setup(provider)


async def test_a_token_names_its_subject_and_groups(setup: Setup) -> None:
    token = setup.provider.token(groups=["staff", "ops"], exp=2_000_000_000)
    caller = await setup.verifier.verify(token)
    assert caller is not None
    assert caller.principal.name == "oidc/alice@example.com"
    assert caller.principal.groups == {"staff", "ops"}
    assert (caller.kind, caller.credential_id) == (CredentialKind.OIDC, caller.principal.name)
    assert caller.expires_ms == (2_000_000_000 + SKEW_S) * 1000


async def test_rsa_keys_verify_tokens_too(setup: Setup) -> None:
    setup.provider.keys["r"] = rsa_key()
    assert await setup.verifier.verify(setup.provider.token("r"))


async def test_keys_are_fetched_once_for_many_calls(setup: Setup) -> None:
    token = setup.provider.token()
    await asyncio.gather(*(setup.verifier.verify(token) for _ in range(20)))
    assert setup.provider.asked == ["/.well-known/openid-configuration", "/keys"]


async def test_a_new_key_is_found_and_bad_key_ids_cause_no_flood(setup: Setup) -> None:
    provider = setup.provider
    await setup.verifier.verify(provider.token())
    provider.keys["k2"] = ec_key()
    assert "no key of the id" in await setup.refusal(provider.token("k2"))
    setup.clock.passed_s = LEAST_S + 1
    await setup.verifier.verify(provider.token("k2"))
    fetched = len(provider.asked)
    for n in range(20):
        await setup.refusal(provider.token(headers={"kid": f"unknown-{n}"}))
    assert len(provider.asked) == fetched


async def test_keys_that_are_not_fresh_are_used_while_they_are_fetched(setup: Setup) -> None:
    provider = setup.provider
    await setup.verifier.verify(provider.token())
    setup.clock.passed_s = FRESH_S + 1
    old = provider.token()
    provider.keys["k1"] = ec_key()
    await setup.verifier.verify(old)
    await eventually(lambda: len(provider.asked) == 4, what="the keys are fetched")
    await eventually(lambda: setup.verifier._refreshing is None)
    # The provider has withdrawn the old key.
    assert "signature" in await setup.refusal(old)
    await setup.verifier.verify(provider.token())


async def test_known_keys_outlive_the_provider_for_a_day(setup: Setup) -> None:
    provider = setup.provider
    token = provider.token()
    await setup.verifier.verify(token)
    provider.status = 503
    setup.clock.passed_s = MOST_S - 60
    await setup.verifier.verify(token)
    await eventually(lambda: setup.verifier._problem)
    setup.clock.passed_s = MOST_S + 60
    assert "Unavailable: the identity provider cannot be asked" in await setup.refusal(token)
    provider.status = 200
    setup.clock.passed_s += LEAST_S + 1
    await setup.verifier.verify(token)


@pytest.mark.parametrize(
    ("discovery", "why"),
    [
        ({"issuer": "https://evil.example.com"}, "another issuer"),
        ({"jwks_uri": "http://10.0.0.1/keys"}, "https is needed"),
        ({"jwks_uri": None}, "https is needed"),
        ({"x": "y" * 600_000}, "larger than"),
    ],
)
async def test_a_false_discovery_document_is_refused(
    setup: Setup, discovery: dict[str, Any], why: str
) -> None:
    setup.provider.discovery = discovery
    refusal = await setup.refusal(setup.provider.token())
    assert refusal.startswith("Unavailable")
    assert why in refusal


async def test_a_redirect_is_not_followed(setup: Setup) -> None:
    setup.provider.status = 302
    assert "answers 302" in await setup.refusal(setup.provider.token())


async def test_a_provider_that_is_not_there_is_named() -> None:
    provider = IdentityProvider()
    provider.issuer = "http://127.0.0.1:1"
    assert "cannot fetch http://127.0.0.1:1/" in await Setup(provider).refusal(provider.token())


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"x") -> str:
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


async def test_forged_tokens_are_refused(setup: Setup) -> None:
    provider = setup.provider
    good = provider.token()
    head, body, signature = good.split(".")
    public = provider.keys["k1"].public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    claims = provider.claims()
    stranger = jwt.encode(claims, ec_key(), "ES256", headers={"kid": "k1"})
    embedded = jwt.encode(
        claims, (own := ec_key()), "ES256", headers={"kid": "k1", "jwk": public_jwk(own, "k1")}
    )
    other = unsigned({"alg": "ES256", "kid": "k1"}, {**claims, "sub": "root"}).split(".")[1]
    forged = {
        "another key": stranger,
        "a key in the header": embedded,
        "none": unsigned({"alg": "none", "kid": "k1"}, claims),
        "None": unsigned({"alg": "None", "kid": "k1"}, claims),
        "hmac with the public key": unsigned({"alg": "HS256", "kid": "k1"}, claims, pem),
        "rs256 for an ec key": unsigned({"alg": "RS256", "kid": "k1"}, claims),
        "other claims": f"{head}.{other}.{signature}",
        "no signature": f"{head}.{body}.A",
        "a logout token": provider.token(headers={"typ": "logout+jwt"}),
        "a crit header": provider.token(headers={"crit": ["x"], "x": 1}),
        "b64": unsigned({"alg": "ES256", "kid": "k1", "b64": False, "crit": ["b64"]}, claims),
        "no object": unsigned({"alg": "ES256", "kid": "k1"}, [1]),  # type: ignore[arg-type]
        "a list as header": unsigned([1], claims),  # type: ignore[arg-type]
        "a number as kid": unsigned({"alg": "ES256", "kid": 1}, claims),
    }
    for what, token in forged.items():
        assert (await setup.refusal(token)).startswith("Unauthenticated"), what
    await setup.verifier.verify(good)


@pytest.mark.parametrize("text", ["", "crp_1_2", "a.b", "a.b.c.d", "a..c", "a.b.c\n", "a b.c.d"])
async def test_other_texts_are_no_signed_tokens(text: str) -> None:
    assert await Provider(EXPECTED, Clock()).verify(text) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"iss": "https://login/"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "other"}, "another audience"),
        ({"aud": ["other", "croupier2"]}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": {"croupier": 1}}, "another audience"),
        ({"exp": None}, "no expiry"),
        ({"exp": NOW - SKEW_S}, "has expired"),
        ({"exp": True}, "malformed time"),
        ({"exp": "soon"}, "malformed time"),
        ({"exp": float("inf")}, "malformed time"),
        ({"exp": 10**400}, "malformed time"),
        ({"nbf": NOW + SKEW_S + 1}, "not valid yet (nbf)"),
        ({"iat": NOW + SKEW_S + 1}, "not valid yet (iat)"),
        ({"sub": None}, "subject"),
        ({"sub": ""}, "subject"),
        ({"sub": "a b"}, "subject"),
        ({"sub": "x" * 400}, "subject"),
        ({"sub": 7}, "subject"),
        ({"groups": 7}, "not a list of names"),
        ({"groups": [["a"]]}, "not a list of names"),
        ({"groups": ["g"] * 257}, "more than 256 groups"),
    ],
)
def test_claims_that_are_refused(changes: dict[str, Any], why: str) -> None:
    claims = {name: value for name, value in (GOOD | changes).items() if value is not None}
    with pytest.raises(Unauthenticated) as refused:
        caller_of(claims, EXPECTED, NOW)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": ["other", AUDIENCE]},
        {"exp": NOW - SKEW_S + 1},
        {"nbf": NOW + SKEW_S - 1, "iat": NOW + SKEW_S - 1},
        {"groups": None},
        {"sub": "auth0|5f7c8ec7c33c6c004bbafe82"},
        {"sub": "https://idp.example.com/u/1"},
    ],
)
def test_claims_that_are_accepted(changes: dict[str, Any]) -> None:
    identity = caller_of(GOOD | changes, EXPECTED, NOW)
    assert identity.principal.name.startswith("oidc/")


def test_one_group_may_be_a_text_and_endless_names_are_left_out() -> None:
    assert caller_of(GOOD | {"groups": "ops"}, EXPECTED, NOW).principal.groups == {"ops"}
    long = GOOD | {"groups": ["", "x" * 300, "ops"]}
    assert caller_of(long, EXPECTED, NOW).principal.groups == {"ops"}


def test_unusable_keys_are_left_out() -> None:
    ec, rsa = public_jwk(ec_key(), "e"), public_jwk(rsa_key(), "r")
    found = keys_of(
        {
            "keys": [
                ec,
                {**rsa, "kid": "enc", "use": "enc"},
                {**rsa, "kid": "ps", "alg": "PS256"},
                public_jwk(rsa_key(1024), "short"),
                {"kty": "oct", "k": "AAAA", "kid": "o"},
                {"kty": "EC", "crv": "P-384", "x": "AA", "y": "AA", "kid": "p"},
                {"kty": "RSA", "n": "!", "e": "AQAB", "kid": "broken"},
                {"kty": ["RSA"]},
                7,
            ]
        }
    )
    assert list(found) == ["e"]


@pytest.mark.parametrize("document", [{}, {"keys": {}}, {"keys": []}, {"keys": [{}] * 65}])
def test_a_document_without_keys_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(Unavailable):
        keys_of(document)


async def test_a_token_without_a_key_id_needs_a_provider_with_one_key(setup: Setup) -> None:
    token = jwt.encode(setup.provider.claims(), setup.provider.keys["k1"], "ES256")
    assert key_id_of(token) == ""
    await setup.verifier.verify(token)
    setup.provider.keys["k2"] = ec_key()
    setup.clock.passed_s = FRESH_S + 1
    await setup.verifier.verify(token)
    await eventually(lambda: len(setup.verifier._keys) == 2)
    assert "no key of the id" in await setup.refusal(token)


@pytest.mark.parametrize(
    "given",
    [
        {"oidc_issuer": "https://login"},
        {"oidc_audience": "croupier"},
        {"oidc_issuer": "http://login.example.com", "oidc_audience": "c"},
        {"oidc_issuer": "https://user:pw@login", "oidc_audience": "c"},
        {"oidc_issuer": "https://login?x=1", "oidc_audience": "c"},
        {"oidc_issuer": "login", "oidc_audience": "c"},
        {"oidc_groups_claim": ""},
    ],
)
def test_malformed_flags_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="--oidc"):
        OidcFlags(**given)


def test_without_the_extra_the_flags_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("croupier.master.flags.find_spec", lambda name: None)
    flags = OidcFlags(oidc_issuer="https://login", oidc_audience="c")
    with pytest.raises(InvalidRequest, match=r"croupier\[oidc\]"):
        flags.provider(SystemClock())
