"""Credentials of HTTP requests, and answers to requests without a valid one.

Rule: credentials come in the header Authorization or in a client certificate, never in a URL: URLs
end up in logs and histories of browsers. No answer and no log line quotes a credential.
"""

from __future__ import annotations

import hmac
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from aiohttp import web

from croupier.model import errors
from croupier.model.principal import PrincipalKind
from croupier.net.credentials import BEARER, read_token
from croupier.net.trust_domain import split_uri
from croupier.process.http.connections import RETRY_AFTER_S
from croupier.process.http.routes import Guard, Requirement

MAX_HEADER: Final = 8192
TOKEN_PREFIX: Final = "crp_"  # noqa: S105 - the beginning of every token
# Names under which clients of other services put credentials into a query.
_NAMES: Final = frozenset(
    {
        "access_token", "api_key", "apikey", "auth", "authorization", "bearer", "id_token", "jwt",
        "password", "secret", "token", "x-api-key",
    }
)  # fmt: skip
IN_URL: Final = (
    "a credential in a URL ends up in logs; send it in the header Authorization: Bearer TOKEN\n"
)
_STATUS: Final[tuple[tuple[type[errors.CroupierError], int], ...]] = (
    (errors.InvalidRequest, 400),
    (errors.Unauthenticated, 401),
    (errors.PermissionDenied, 403),
    (errors.Unavailable, 503),
)


@dataclass(frozen=True, slots=True)
class HttpCredential:
    """The credential of a request.

    Attributes:
        host: the address that it comes from.
        token: bearer token; None for none.
        uris: SAN URIs of the client certificate that TLS has verified.
        certificate: that certificate (DER); empty for none.
    """

    host: str
    token: str | None = field(default=None, repr=False)
    uris: tuple[str, ...] = ()
    certificate: bytes = field(default=b"", repr=False)


def has_credential_in_url(request: web.Request) -> bool:
    """Return whether the request's URL holds something that looks like a credential."""
    if TOKEN_PREFIX in unquote(request.raw_path):
        return True
    return any(name.lower() in _NAMES for name in request.query)


def bearer_of(request: web.Request) -> str | None:
    """Return the bearer token of a request, or None; raises Unauthenticated if it is malformed."""
    values = request.headers.getall("Authorization", [])
    if not values:
        return None
    value = values[0]
    is_bearer = value[: len(BEARER)].lower() == BEARER.lower()
    if len(values) > 1 or not is_bearer or len(value) > MAX_HEADER:
        raise errors.Unauthenticated("give one header Authorization: Bearer TOKEN")
    return value[len(BEARER) :].strip()


def credential_of(
    request: web.Request, token_of: Callable[[web.Request], str | None] = bearer_of
) -> HttpCredential:
    """Return the credential of a request; `token_of` returns the token in it.

    An expired certificate does not count. A connection, or a session that it resumes, may be older
    than the end of the certificate. Raises Unauthenticated if the header Authorization is
    malformed.
    """
    host, token = request.remote or "", token_of(request)
    tls = None if request.transport is None else request.transport.get_extra_info("ssl_object")
    certificate: dict[str, Any] | None = None if tls is None else tls.getpeercert()
    if tls is None or not certificate:
        return HttpCredential(host, token)
    if ssl.cert_time_to_seconds(certificate["notAfter"]) <= time.time():
        return HttpCredential(host, token)
    names: Iterable[tuple[str, str]] = certificate.get("subjectAltName", ())
    uris = tuple(value for kind, value in names if kind == "URI")
    return HttpCredential(host, token, uris, tls.getpeercert(binary_form=True))


def identities_in(uris: Iterable[str], trust_domain: str) -> tuple[str, ...]:
    """Return the principals that SAN URIs of the trust domain name, such as `client/prometheus`."""
    found = (split_uri(uri) for uri in uris)
    return tuple(each[1] for each in found if each and each[0] == trust_domain)


def is_token_of_file(token: str, path: Path) -> bool:
    """Return whether `token` is on the first line of a file, read now; raises Unavailable."""
    try:
        expected = read_token(path)
    except errors.InvalidRequest as error:
        raise errors.Unavailable(str(error)) from None
    return hmac.compare_digest(token.encode(errors="replace"), expected.encode())


def refusal(error: errors.CroupierError, requirement: Requirement | None) -> web.Response:
    """Return the answer to a request that does not meet the requirement of its route."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 403)
    headers: dict[str, str] = {}
    if status in (401, 403) and requirement is not None:
        headers["WWW-Authenticate"] = requirement.challenge
    if status == 503:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    return web.Response(text=f"{error}\n", status=status, headers=headers)


# Raises a CroupierError for a credential that may not read metrics.
CheckCredential = Callable[[HttpCredential], Awaitable[None]]


def metrics_guard(token_file: Path | None, check: CheckCredential) -> Guard:
    """Return a guard of /metrics, for the token in `token_file` and what `check` does not refuse.

    The file serves scrapers of daemons that cannot check other tokens: agents, and masters that
    follow.
    """

    async def guard(request: web.Request) -> None:
        presented = credential_of(request)
        token = presented.token
        if token is not None and token_file is not None and is_token_of_file(token, token_file):
            return
        await check(presented)

    return guard


def clients_only(trust_domain: Callable[[], str]) -> CheckCredential:
    """Return a check that admits certificates of clients in the trust domain, and no tokens."""

    async def check(presented: HttpCredential) -> None:
        if presented.token is not None:
            raise errors.Unauthenticated("the bearer token is not the one in --metrics-token-file")
        found = identities_in(presented.uris, trust_domain())
        if not found:
            raise errors.Unauthenticated(
                "metrics need the client certificate of a client of this cluster, or the token in"
                " --metrics-token-file"
            )
        if not any(each.startswith(f"{PrincipalKind.CLIENT.value}/") for each in found):
            raise errors.PermissionDenied(f"{found[0]} may not read metrics; only clients may")

    return check
