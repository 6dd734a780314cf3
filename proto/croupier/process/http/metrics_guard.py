"""The guard of /metrics: the token in a file of the daemon, or another credential.

The file serves scrapers of daemons that cannot check other tokens: agents, and masters that follow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from croupier.model.errors import PermissionDenied, Unauthenticated
from croupier.model.principal import PrincipalKind
from croupier.process.http.credentials import (
    HttpCredential,
    credential_of,
    identities_in,
    is_token_of_file,
)
from croupier.process.http.routes import Guard

# Raises a CroupierError for a credential that may not read metrics.
CheckCredential = Callable[[HttpCredential], Awaitable[None]]


def metrics_guard(token_file: Path | None, check: CheckCredential) -> Guard:
    """Return a guard that admits the token in `token_file`, and what `check` does not refuse."""

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
            raise Unauthenticated("the bearer token is not the one in --metrics-token-file")
        found = identities_in(presented.uris, trust_domain())
        if not found:
            raise Unauthenticated(
                "metrics need the client certificate of a client of this cluster, or the token in"
                " --metrics-token-file"
            )
        if not any(each.startswith(f"{PrincipalKind.CLIENT.value}/") for each in found):
            raise PermissionDenied(f"{found[0]} may not read metrics; only clients may")

    return check
