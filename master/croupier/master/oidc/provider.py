"""An identity provider: its keys, cached, and the check of signatures.

A key has one algorithm, RS256 or ES256, which its type decides and no token can change. Keys of
other types or purposes, and RSA keys of fewer than 2,048 bits, are left out.

Rule: callers cannot make the master ask the provider more often than every `LEAST_S`, with
any tokens. If the provider cannot be reached, known keys stay in use for `MOST_S`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from croupier.model.clock import Clock
from croupier.model.errors import InvalidRequest, Unauthenticated, Unavailable
from croupier.net.address import Address
from croupier.process.http.fetch import fetch_json
from croupier.process.logging import get_logger

if TYPE_CHECKING:
    from jwt import PyJWK


# The algorithm of each type of key.
ALGORITHMS: Final = {"RSA": "RS256", "EC": "ES256"}
MAX_KEYS: Final = 64
MIN_RSA_BITS: Final = 2048
# Types of tokens that name a caller; others, such as logout tokens, do not.
TYPES: Final = ("jwt", "at+jwt", "application/at+jwt")
_FORM: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")

# By key id; "" for a key without one.
Keys = Mapping[str, "PyJWK"]

# Keys older than this are fetched again; meanwhile the known ones are used.
FRESH_S: Final = 600.0
LEAST_S: Final = 10.0
MOST_S: Final = 24 * 3600.0
MAX_URL: Final = 2048

Fetch = Callable[[str], Awaitable[dict[str, Any]]]
_log = get_logger("croupier.master")


def is_token(text: str) -> bool:
    """Return whether `text` has the form of a signed token."""
    return _FORM.fullmatch(text) is not None


def keys_of(document: Mapping[str, Any]) -> Keys:
    """Return the usable keys of a JSON Web Key Set.

    Raises:
        Unavailable: if there is none, or the document is malformed.
    """
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

    Raises:
        Unauthenticated: if it is malformed, or of an algorithm or a type that is not accepted.
    """
    import jwt

    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise Unauthenticated("the token is malformed") from None
    if header.get("alg") not in ALGORITHMS.values():
        raise Unauthenticated("the token is not signed by RS256 or ES256")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in TYPES:
        raise Unauthenticated("the token is of a type (typ) that is not accepted")
    kid = header.get("kid", "")
    return kid if isinstance(kid, str) else ""


def verified_claims(token: str, key: PyJWK) -> Mapping[str, Any]:
    """Return the claims of a token that `key` has signed; no claim is checked.

    Raises:
        Unauthenticated: if the signature does not match, or the token is malformed.
    """
    import jwt

    unchecked: Any = dict.fromkeys(
        ("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss"), False
    )
    try:
        return jwt.decode(token, key, algorithms=[key.algorithm_name], options=unchecked)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise Unauthenticated("the signature of the token does not match") from None


def _usable(document: Mapping[str, Any]) -> PyJWK | None:
    from jwt import PyJWK, PyJWTError

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


# Members of public keys; nothing else of a key is read, nor kept.
_PUBLIC: Final = ("kty", "n", "e", "crv", "x", "y")


class Provider:
    """The keys of one issuer."""

    def __init__(self, issuer: str, clock: Clock, fetch: Fetch = fetch_json) -> None:
        """Prepare; the first `key` asks the provider."""
        self._issuer, self._clock, self._fetch = issuer, clock, fetch
        self._keys: Keys = {}
        self._read_at = self._tried_at = float("-inf")
        self._problem = ""
        self._refreshing: asyncio.Task[None] | None = None

    async def key(self, key_id: str) -> PyJWK:
        """Return the key of that id; without an id the only key, if there is one.

        Raises:
            Unauthenticated: if the provider has no such key.
            Unavailable: if the provider cannot be asked, and the key is not known.
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

        Raises:
            Unavailable: if that fails, or the document is of another issuer.
        """
        where = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        document = await self._fetch(where)
        if document.get("issuer") != self._issuer:
            raise Unavailable(
                f"{where} is of another issuer; --oidc-issuer must be exactly the one that it names"
            )
        url = document.get("jwks_uri")
        try:
            check_url(url if isinstance(url, str) else "", takes_query=True)
        except InvalidRequest as error:
            raise Unavailable(f"{where}: jwks_uri: {error}") from None
        return keys_of(await self._fetch(str(url)))


def check_url(text: str, *, takes_query: bool = False) -> str:
    """Return `text` if it is an URL of a provider: https, or http on this machine.

    Raises:
        InvalidRequest: if it is not.
    """
    try:
        url = urlsplit(text)
        host = url.hostname or ""
    except ValueError:
        raise InvalidRequest("not an URL") from None
    is_local = url.scheme == "http" and Address(host, 0).is_loopback
    if not host or len(text) > MAX_URL or not (url.scheme == "https" or is_local):
        raise InvalidRequest("an URL with https is needed")
    if url.username is not None or url.fragment or (url.query and not takes_query):
        raise InvalidRequest("an URL without user, query and fragment is needed")
    return text
