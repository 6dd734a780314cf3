"""Authentication: from the credential of a call to its caller.

Rule: a bearer token in the metadata `authorization`, if there is one, decides; else the client
certificate does. A credential that is presented must be valid. Nothing here reads other metadata.
An error never quotes a credential.
"""

from __future__ import annotations

import hmac
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from croupier.master.access.caller import Caller, CredentialKind
from croupier.master.core.access_records import TokenId, TokenKind, TokenRecord
from croupier.master.core.state import State
from croupier.model.access import LOCAL_ADMIN
from croupier.model.clock import Clock
from croupier.model.errors import CroupierError, InvalidRequest, Unauthenticated
from croupier.model.principal import Principal, PrincipalKind, check_principal
from croupier.model.token import BearerToken
from croupier.net.certificate import parse_certificates
from croupier.net.credentials import BEARER, MAX_TOKEN_BYTES
from croupier.net.trust_domain import split_uri

if TYPE_CHECKING:  # aiohttp
    from croupier.process.http.credentials import HttpCredential

# Certificates whose names and expiry are remembered.
MOST_CERTIFICATES: Final = 10_000
_NO_HASH: Final = "0" * 64
# Tokens that a follower reads from the store at once.
MOST_FINDING: Final = 8
FindToken = Callable[[TokenId], Awaitable[TokenRecord | None]]
# Returns the caller of a token of an identity provider, without its host; None if it is none.
VerifyOther = Callable[[str], Awaitable[Caller | None]]


class AuthenticationFailed(Unauthenticated):
    """No valid credential.

    `reason`: for metrics: missing, malformed, unknown, expired, revoked, certificate or provider.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Presented:
    """The credential that a call presents.

    Attributes:
        authorization: the values of the metadata or header `authorization`.
        names: the subject alternative names of a client certificate that TLS has verified.
        certificate: that certificate in PEM.
    """

    host: str = ""
    authorization: Sequence[str] = ()
    names: Sequence[bytes] = ()
    certificate: bytes = b""

    @classmethod
    def by_http(cls, credential: HttpCredential) -> Presented:
        """Return what an HTTP request presents."""
        token, der = credential.token, credential.certificate
        return cls(
            credential.host,
            () if token is None else (BEARER + token,),
            [uri.encode() for uri in credential.uris],
            ssl.DER_cert_to_PEM_cert(der).encode() if der else b"",
        )


class Authenticator:
    """Authenticates calls.

    Attributes:
        is_on: False: all callers are anonymous.
        admin_token: the token of `LOCAL_ADMIN`; None if there is none.
        find_token: reads a token from the store of other masters; None if there are none.
        verify_other: verifies tokens that are not Croupier's; None refuses them.
    """

    def __init__(
        self,
        clock: Clock,
        state: Callable[[], State | None],
        *,
        is_on: bool,
        trust_domain: Callable[[], str] = lambda: "",
        admin_token: BearerToken | None = None,
        is_mutual: bool = False,
        verify_other: VerifyOther | None = None,
    ) -> None:
        """Authenticate by the tokens and the revoked keys in `state`; None while this follows.

        `trust_domain` returns that of this master's own certificate; empty accepts none. With
        `is_mutual`, the advertised listener of masters requires certificates.
        """
        self.is_on, self.verify_other, self.admin_token = is_on, verify_other, admin_token
        self._clock, self._state, self._trust_domain = clock, state, trust_domain
        self._is_mutual = is_mutual
        self._certificates: OrderedDict[bytes, tuple[str, Caller]] = OrderedDict()
        self.find_token: FindToken | None = None
        self._finding = 0

    async def authenticate(self, presented: Presented) -> Caller:
        """Return the caller; raises AuthenticationFailed, or Unavailable without a provider."""
        if not self.is_on:
            return Caller(host=presented.host)
        has_certificate = bool(presented.names or presented.certificate)
        if presented.authorization:
            found = await self._of_token(_bearer(presented.authorization))
        elif has_certificate:
            found = self._of_certificate(presented)
        else:
            raise AuthenticationFailed(
                "the call has no credential: give a bearer token or a client certificate", "missing"
            )
        if found.is_expired(self._clock.wall_ms()):
            raise AuthenticationFailed("the credential has expired", "expired")
        can_reach_leader = has_certificate or not self._is_mutual
        return replace(
            found, host=presented.host, is_redirected=can_reach_leader and found.is_stored
        )

    async def _of_token(self, text: str) -> Caller:
        try:
            token = BearerToken.parse(text)
        except InvalidRequest:
            try:
                other = None if self.verify_other is None else await self.verify_other(text)
            except Unauthenticated as error:
                raise AuthenticationFailed(str(error), "provider") from None
            if other is not None:
                return other
            raise AuthenticationFailed(
                "the bearer token is malformed: a token has the form crp_ID_SECRET", "malformed"
            ) from None
        digest = token.hash.hex()
        admin = self.admin_token
        if admin is not None and token.token_id == admin.token_id:
            _compare(digest, admin.hash.hex())
            return Caller(Principal(LOCAL_ADMIN), CredentialKind.TOKEN, token.token_id)
        state = self._state()
        if state is None:
            is_stored = await self._is_stored(token)
            return Caller(
                kind=CredentialKind.UNCHECKED, credential_id=token.token_id, is_stored=is_stored
            )
        record = state.tokens.get(TokenId(token.token_id))
        # Without a record the comparison fails, and takes as long.
        _compare(digest, _NO_HASH if record is None else record.hash)
        assert record is not None
        kind = CredentialKind.JOIN if record.kind is TokenKind.JOIN else CredentialKind.TOKEN
        return Caller(Principal(record.principal), kind, record.token_id, record.expires_ms)

    async def _is_stored(self, token: BearerToken) -> bool:
        """Return whether the store of the leader has this token, as far as a follower can read."""
        if self.find_token is None:
            return True
        if self._finding >= MOST_FINDING:
            return False
        self._finding += 1
        try:
            record = await self.find_token(TokenId(token.token_id))
        except CroupierError:
            return False
        finally:
            self._finding -= 1
        return record is not None and hmac.compare_digest(record.hash, token.hash.hex())

    def _of_certificate(self, presented: Presented) -> Caller:
        known = self._certificates.get(presented.certificate)
        if known is None:
            known = _read_certificate(presented)
            self._certificates[presented.certificate] = known
            if len(self._certificates) > MOST_CERTIFICATES:
                self._certificates.popitem(last=False)
        domain, caller = known
        own = self._trust_domain()
        if not own or domain != own:
            raise AuthenticationFailed(
                f"the client certificate is of the cluster {domain!r}, not of this one",
                "certificate",
            )
        self.check_revoked(caller)
        return caller

    def check_revoked(self, caller: Caller) -> None:
        """Raise AuthenticationFailed if the certificate of an authenticated caller is revoked."""
        state = self._state()
        if caller.kind is not CredentialKind.CERTIFICATE or state is None:
            return
        if caller.credential_id in state.access.revoked:
            raise AuthenticationFailed(
                f"the client certificate was revoked (key {caller.credential_id}); get a new one"
                " with a new key",
                "revoked",
            )


def _read_certificate(presented: Presented) -> tuple[str, Caller]:
    """Return trust domain and holder; raises AuthenticationFailed unless it names exactly one."""
    names = [each.decode("utf-8", "replace") for each in presented.names]
    found = [each for each in map(split_uri, names) if each is not None]
    if len(found) != 1:
        raise AuthenticationFailed(
            "the client certificate names no principal: it needs exactly one SAN URI"
            " croupier://CLUSTER/KIND/NAME",
            "certificate",
        )
    domain, name = found[0]
    try:
        principal = check_principal(name)
        certificate = parse_certificates(presented.certificate, Path("the client certificate"))[0]
    except (InvalidRequest, ValueError) as error:
        raise AuthenticationFailed(f"the client certificate: {error}", "certificate") from None
    if principal.partition("/")[0] == PrincipalKind.OIDC.value:
        raise AuthenticationFailed(
            "a certificate names no subject of an identity provider", "certificate"
        )
    return domain, Caller(
        Principal(principal),
        CredentialKind.CERTIFICATE,
        certificate.key_id,
        round(certificate.expires_at * 1000),
    )


def _bearer(values: Sequence[str]) -> str:
    """Return the bearer token; raises AuthenticationFailed unless there is exactly one."""
    value = values[0]
    is_bearer = value[: len(BEARER)].lower() == BEARER.lower()
    if len(values) > 1 or not is_bearer or len(value) > MAX_TOKEN_BYTES:
        raise AuthenticationFailed(
            "malformed metadata: give one `authorization: Bearer TOKEN`", "malformed"
        )
    return value[len(BEARER) :].strip()


def _compare(digest: str, known: str) -> None:
    """Compare hashes in constant time. Raises AuthenticationFailed if they differ."""
    if not hmac.compare_digest(digest, known):
        raise AuthenticationFailed("the token is unknown: it was revoked, or never made", "unknown")
