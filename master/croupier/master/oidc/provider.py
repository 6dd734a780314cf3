"""An identity provider: its keys, cached.

Rule: callers cannot make the master ask the provider more often than every `LEAST_S`, with
any tokens. If the provider cannot be reached, known keys stay in use for `MOST_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from croupier.master.oidc.keys import Keys, keys_of
from croupier.model.clock import Clock
from croupier.model.errors import InvalidRequest, Unauthenticated, Unavailable
from croupier.net.address import Address
from croupier.process.http.fetch import fetch_json
from croupier.process.logging import get_logger

if TYPE_CHECKING:
    from jwt import PyJWK

# Keys older than this are fetched again; meanwhile the known ones are used.
FRESH_S: Final = 600.0
LEAST_S: Final = 10.0
MOST_S: Final = 24 * 3600.0
MAX_URL: Final = 2048

Fetch = Callable[[str], Awaitable[dict[str, Any]]]
_log = get_logger("croupier.master")


class Provider:
    """The keys of one issuer."""

    def __init__(self, issuer: str, clock: Clock, fetch: Fetch = fetch_json) -> None:
        """Ask nothing before the first `key`."""
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
            await self._refreshed()
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

    async def _refreshed(self) -> None:
        refreshing = self.refresh()
        if refreshing is not None:
            # Other calls wait for it too, so the end of this one must not cancel it.
            await asyncio.shield(refreshing)

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
