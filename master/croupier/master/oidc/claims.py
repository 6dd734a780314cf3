"""The claims of a token, and the principal that they name. Pure.

Rule: issuer and audience match exactly; a token without an expiry or a subject is refused. Clocks
may differ by `SKEW_S`. Errors quote only the names of claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from croupier.model.errors import InvalidRequest, Unauthenticated
from croupier.model.principal import Principal, PrincipalKind, principal_name

SKEW_S: Final = 60.0
MAX_GROUPS: Final = 256
MAX_GROUP: Final = 256
# The year 9999.
_LATEST_S: Final = 253_402_300_799


@dataclass(frozen=True, slots=True)
class Expectation:
    """The claims that tokens must have.

    Attributes:
        issuer: the provider's identifier, an URL.
        audience: names this cluster among the provider's clients.
        groups_claim: the claim with the names of the subject's groups.
    """

    issuer: str
    audience: str
    groups_claim: str = "groups"


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """The principal that a token names.

    Attributes:
        expires_ms: when the token is refused, in milliseconds since the epoch.
    """

    principal: Principal
    expires_ms: int


def identity_of(claims: Mapping[str, Any], expected: Expectation, now_s: float) -> TokenIdentity:
    """Return the principal that verified claims name; `now_s`: seconds since the epoch.

    Raises:
        Unauthenticated: if the token is of another issuer, for another audience, not valid now, or
            malformed.
    """
    if claims.get("iss") != expected.issuer:
        raise Unauthenticated("the token is of another issuer")
    audience = claims.get("aud")
    if expected.audience not in (audience if isinstance(audience, list) else [audience]):
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
    groups = _groups(claims.get(expected.groups_claim), expected.groups_claim)
    return TokenIdentity(Principal(name, groups), round((expires_s + SKEW_S) * 1000))


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
