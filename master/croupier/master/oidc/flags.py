"""Flags of a master for the tokens of an identity provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cyclopts import Parameter

from croupier.model.clock import Clock
from croupier.model.errors import InvalidRequest

if TYPE_CHECKING:  # the extra `oidc`, and aiohttp
    from croupier.master.oidc.verifier import OidcVerifier


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class OidcFlags:
    """The identity provider whose tokens a master accepts.

    Raises:
        InvalidRequest: if one of issuer and audience is missing, or the issuer is no URL.
    """

    oidc_issuer: str = ""
    """Identity provider (OpenID Connect) that issues bearer tokens for callers, such as
    https://login.example.com/realms/main. Must equal the issuer (iss) in its tokens. Needs the
    extra croupier[oidc]."""

    oidc_audience: str = ""
    """Audience (aud) of tokens for this cluster: the client id that the provider has given it."""

    oidc_groups_claim: str = "groups"
    """Claim of a token that lists the caller's groups. Group g of the claim is the member oidc:g of
    groups of the access policy."""

    def __post_init__(self) -> None:
        from croupier.master.oidc.provider import check_url

        if bool(self.oidc_issuer) != bool(self.oidc_audience):
            raise InvalidRequest("--oidc-issuer and --oidc-audience need each other")
        if self.oidc_issuer:
            try:
                check_url(self.oidc_issuer)
            except InvalidRequest as error:
                raise InvalidRequest(f"--oidc-issuer: {error}") from None
        if not self.oidc_groups_claim:
            raise InvalidRequest("--oidc-groups-claim is empty")

    def verifier(self, clock: Clock) -> OidcVerifier | None:
        """Return what verifies the provider's tokens; None without a provider.

        Raises:
            InvalidRequest: if the extra `oidc` is not installed.
        """
        if not self.oidc_issuer:
            return None
        from croupier.master.oidc.claims import Expectation
        from croupier.master.oidc.provider import Provider
        from croupier.master.oidc.verifier import OidcVerifier

        expected = Expectation(self.oidc_issuer, self.oidc_audience, self.oidc_groups_claim)
        return OidcVerifier(expected, Provider(self.oidc_issuer, clock), clock)
