"""Verifies bearer tokens of an identity provider, by their claims.

Rule: issuer and audience match exactly; a token without an expiry or a subject is refused. Clocks
may differ by `SKEW_S`. Errors quote only the names of claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from croupier.master.access.caller import Caller, CredentialKind
from croupier.master.oidc.provider import Provider, is_token, key_id_of, verified_claims
from croupier.model.clock import Clock
from croupier.model.errors import InvalidRequest, Unauthenticated
from croupier.model.principal import Principal, PrincipalKind, principal_name

if TYPE_CHECKING:  # cyclopts
    from croupier.master.flags import OidcFlags

SKEW_S: Final = 60.0
MAX_GROUPS: Final = 256
MAX_GROUP: Final = 256
# The year 9999.
_LATEST_S: Final = 253_402_300_799


def caller_of(claims: Mapping[str, Any], expected: OidcFlags, now_s: float) -> Caller:
    """Return the caller that verified claims name; `now_s`: seconds since the epoch.

    Raises:
        Unauthenticated: if the token is of another issuer, for another audience, not valid now, or
            malformed.
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


class OidcVerifier:
    """The `Verifier` of tokens of one issuer for one audience."""

    def __init__(self, expected: OidcFlags, provider: Provider, clock: Clock) -> None:
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
        return caller_of(verified_claims(token, key), self._expected, self._clock.wall_ms() / 1000)
