"""Verifies bearer tokens of an identity provider."""

from __future__ import annotations

from importlib.util import find_spec

from croupier.master.access.caller import Caller, CredentialKind
from croupier.master.oidc.claims import Expectation, identity_of
from croupier.master.oidc.keys import is_token, key_id_of, verified_claims
from croupier.master.oidc.provider import Provider
from croupier.model.clock import Clock
from croupier.model.errors import InvalidRequest


class OidcVerifier:
    """The `Verifier` of tokens of one issuer for one audience."""

    def __init__(self, expected: Expectation, provider: Provider, clock: Clock) -> None:
        """Verify signatures by the keys of `provider`.

        Raises:
            InvalidRequest: if the extra `oidc` is not installed.
        """
        if find_spec("jwt") is None or find_spec("cryptography") is None:
            raise InvalidRequest("--oidc-issuer needs an extra: pip install 'croupier[oidc]'")
        self._expected, self._provider, self._clock = expected, provider, clock

    def begin(self) -> None:
        """Begin to fetch the provider's keys, so that the first call need not wait."""
        self._provider.refresh()

    def takes(self, token: str) -> bool:
        """Return whether it has the form of a signed token."""
        return is_token(token)

    async def verify(self, token: str) -> Caller:
        """Return the caller.

        Raises:
            Unauthenticated: if the token is not valid.
            Unavailable: if the provider cannot be asked for the key that it names.
        """
        key = await self._provider.key(key_id_of(token))
        claims = verified_claims(token, key)
        identity = identity_of(claims, self._expected, self._clock.wall_ms() / 1000)
        name = identity.principal.name
        return Caller(identity.principal, CredentialKind.OIDC, name, identity.expires_ms)
