"""Bearer tokens of an OpenID Connect provider. Needs the extra `oidc` (PyJWT).

A key has one algorithm, RS256 or ES256, which its type decides and no token can change. Keys of
other types or purposes, and RSA keys of fewer than 2,048 bits, are left out.

Rule: callers cannot make the master ask the provider more often than every `LEAST_S`, with any
tokens. If the provider cannot be reached, known keys stay in use for `MOST_S`.

Rule: issuer and audience match exactly; a token without an expiry or a subject is refused. Clocks
may differ by `SKEW_S`. Errors quote only the names of claims.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final

import jwt
from jwt import PyJWK, PyJWTError

from croupier.master.access.caller import Caller, CredentialKind
from croupier.master.flags import OidcFlags, check_provider_url
from croupier.model.clock import Clock
from croupier.model.errors import InvalidRequest, Unauthenticated, Unavailable
from croupier.model.principal import Principal, PrincipalKind, principal_name
from croupier.process.http.fetch import fetch_json
from croupier.process.logging import get_logger

# The algorithm of each type of key.
ALGORITHMS: Final = {"RSA": "RS256", "EC": "ES256"}
MAX_KEYS: Final = 64
MIN_RSA_BITS: Final = 2048
# Members of public keys; nothing else of a key is read, nor kept.
_PUBLIC: Final = ("kty", "n", "e", "crv", "x", "y")
# Types of tokens that name a caller; others, such as logout tokens, do not.
TYPES: Final = ("jwt", "at+jwt", "application/at+jwt")
_FORM: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")

# By key id; "" for a key without one.
Keys = Mapping[str, PyJWK]

# Keys older than this are fetched again; meanwhile the known ones are used.
FRESH_S: Final = 600.0
LEAST_S: Final = 10.0
MOST_S: Final = 24 * 3600.0
SKEW_S: Final = 60.0
MAX_GROUPS: Final = 256
MAX_GROUP: Final = 256
# The year 9999.
_LATEST_S: Final = 253_402_300_799

_log = get_logger("croupier.master")


def keys_of(document: Mapping[str, Any]) -> Keys:
    """Return the usable keys of a JSON Web Key Set; raises Unavailable if it has none."""
    listed = document.get("keys")
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise Unavailable(f"the provider's document of keys has no list of up to {MAX_KEYS} keys")
    keys: dict[str, PyJWK] = {}
    for each in listed:
        if isinstance(each, dict) and (key := _usable(each)) is not None:
            kid = each.get("kid", "")
            keys[kid if isinstance(kid, str) else ""] = key
    if not keys:
        raise Unavailable("the provider's document has no key for RS256 or ES256")
    return keys


def key_id_of(token: str) -> str:
    """Return the id of the key that the token names as its signer; empty if it names none.

    Raises Unauthenticated if it is malformed, or of an algorithm or a type that is not accepted.
    """
    try:
        header = jwt.get_unverified_header(token)
    except (PyJWTError, ValueError, RecursionError):
        raise Unauthenticated("the token is malformed") from None
    if header.get("alg") not in ALGORITHMS.values():
        raise Unauthenticated("the token is not signed by RS256 or ES256")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in TYPES:
        raise Unauthenticated("the token is of a type (typ) that is not accepted")
    kid = header.get("kid", "")
    return kid if isinstance(kid, str) else ""


def verified_claims(token: str, key: PyJWK) -> Mapping[str, Any]:
    """Return the claims of a token that `key` has signed, unchecked; raises Unauthenticated."""
    unchecked: Any = dict.fromkeys(
        ("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss"), False
    )
    try:
        return jwt.decode(token, key, algorithms=[key.algorithm_name], options=unchecked)
    except (PyJWTError, ValueError, TypeError, RecursionError):
        raise Unauthenticated("the signature of the token does not match") from None


def _usable(document: Mapping[str, Any]) -> PyJWK | None:
    kind = document.get("kty")
    algorithm = ALGORITHMS.get(kind) if isinstance(kind, str) else None
    if algorithm is None or document.get("use", "sig") != "sig":
        return None
    if document.get("alg", algorithm) != algorithm or document.get("crv", "P-256") != "P-256":
        return None
    public = {name: value for name, value in document.items() if name in _PUBLIC}
    try:
        key = PyJWK(public, algorithm)
    except (PyJWTError, ValueError, TypeError, OverflowError):
        return None
    is_short = kind == "RSA" and getattr(key.key, "key_size", 0) < MIN_RSA_BITS
    return None if is_short else key


def caller_of(claims: Mapping[str, Any], expected: OidcFlags, now_s: float) -> Caller:
    """Return the caller that verified claims name; `now_s`: seconds since the epoch.

    Raises Unauthenticated if the token is of another issuer, for another audience, not valid now,
    or malformed.
    """
    if claims.get("iss") != expected.oidc_issuer:
        raise Unauthenticated("the token is of another issuer")
    audience = claims.get("aud")
    if expected.oidc_audience not in (audience if isinstance(audience, list) else [audience]):
        raise Unauthenticated("the token is for another audience")
    expires_s = _time(claims, "exp")
    if expires_s is None:
        raise Unauthenticated("the token has no expiry (exp)")
    if now_s >= expires_s + SKEW_S:
        raise Unauthenticated("the token has expired")
    for name in ("nbf", "iat"):
        begins_s = _time(claims, name)
        if begins_s is not None and now_s < begins_s - SKEW_S:
            raise Unauthenticated(f"the token is not valid yet ({name}); compare clocks")
    subject = claims.get("sub")
    try:
        name = principal_name(PrincipalKind.OIDC, subject if isinstance(subject, str) else "")
    except InvalidRequest:
        raise Unauthenticated("the subject (sub) of the token cannot be a principal") from None
    groups = _groups(claims.get(expected.oidc_groups_claim), expected.oidc_groups_claim)
    expires_ms = round((expires_s + SKEW_S) * 1000)
    return Caller(Principal(name, groups), CredentialKind.OIDC, name, expires_ms)


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """Return a time in seconds since the epoch; None if the claim is absent."""
    value = claims.get(name)
    if value is None:
        return None
    # No comparison with NaN holds.
    if type(value) not in (int, float) or not 0 <= value <= _LATEST_S:
        raise Unauthenticated(f"the token has a malformed time ({name})")
    return float(value)


def _groups(claim: Any, name: str) -> frozenset[str]:
    """Return the groups: a list of names, or one name."""
    listed = [claim] if isinstance(claim, str) else claim or []
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise Unauthenticated(f"the claim {name} of the token is not a list of names")
    if len(listed) > MAX_GROUPS:
        raise Unauthenticated(f"the token names more than {MAX_GROUPS} groups")
    return frozenset(each for each in listed if 0 < len(each) <= MAX_GROUP)


class Provider:
    """Verifies tokens of one issuer for one audience, by the issuer's keys."""

    def __init__(self, expected: OidcFlags, clock: Clock) -> None:
        """Prepare; the first token, or `refresh`, asks the provider."""
        self._expected, self._issuer, self._clock = expected, expected.oidc_issuer, clock
        self._keys: Keys = {}
        self._read_at = self._tried_at = float("-inf")
        self._problem = ""
        self._refreshing: asyncio.Task[None] | None = None

    async def verify(self, token: str) -> Caller | None:
        """Return the caller, without its host; None if this has not the form of a signed token.

        Raises Unauthenticated if the token is not valid; Unavailable if the provider cannot be
        asked for the key that it names.
        """
        if _FORM.fullmatch(token) is None:
            return None
        claims = verified_claims(token, await self._key(key_id_of(token)))
        return caller_of(claims, self._expected, self._clock.wall_ms() / 1000)

    async def _key(self, key_id: str) -> PyJWK:
        """Return the key of that id; without an id the only key, if there is one.

        Raises Unauthenticated if the provider has no such key; Unavailable if the provider cannot
        be asked, and the key is not known.
        """
        now = self._clock.now()
        if self._find(key_id) is None or now - self._read_at > MOST_S:
            refreshing = self.refresh()
            if refreshing is not None:
                # Other calls wait for it too, so the end of this one must not cancel it.
                await asyncio.shield(refreshing)
        elif now - self._read_at > FRESH_S:
            self.refresh()
        found = self._find(key_id)
        if found is not None and self._clock.now() - self._read_at <= MOST_S:
            return found
        if self._problem:
            raise Unavailable(f"the identity provider cannot be asked: {self._problem}")
        raise Unauthenticated("the provider has no key of the id (kid) that the token names")

    def refresh(self) -> asyncio.Task[None] | None:
        """Begin to fetch the keys, unless they were fetched a moment ago; one fetch at a time."""
        if self._refreshing is not None:
            return self._refreshing
        if self._clock.now() - self._tried_at < LEAST_S:
            return None
        self._tried_at = self._clock.now()
        self._refreshing = asyncio.create_task(self._read(), name="oidc keys")
        return self._refreshing

    def _find(self, key_id: str) -> PyJWK | None:
        if not key_id and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    async def _read(self) -> None:
        try:
            keys = await self._fetched()
        except Unavailable as error:
            self._problem = str(error)
            _log.error("oidc_provider_unavailable", issuer=self._issuer, error=self._problem)
        else:
            if keys.keys() != self._keys.keys():
                _log.info("oidc_keys_read", issuer=self._issuer, keys=len(keys))
            self._keys, self._read_at, self._problem = keys, self._clock.now(), ""
        finally:
            self._refreshing = None

    async def _fetched(self) -> Keys:
        """Fetch the discovery document, and the keys that it names.

        Raises Unavailable if that fails, or the document is of another issuer.
        """
        where = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        document = await fetch_json(where)
        if document.get("issuer") != self._issuer:
            raise Unavailable(
                f"{where} is of another issuer; --oidc-issuer must be exactly the one that it names"
            )
        url = document.get("jwks_uri")
        try:
            check_provider_url(url if isinstance(url, str) else "", takes_query=True)
        except InvalidRequest as error:
            raise Unavailable(f"{where}: jwks_uri: {error}") from None
        return keys_of(await fetch_json(str(url)))
