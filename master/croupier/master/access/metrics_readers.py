"""Who may read /metrics of a master: principals with the permission to read metrics.

Refused requests have a line in the audit log, as refused calls have.

A master that follows does not know the rules. Then it admits the certificate of any client of the
cluster, because followers export nothing about frameworks, agents and tasks.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from croupier.master.access.audit import Audit, AuditOutcome
from croupier.master.access.caller import Call, Caller, CredentialKind
from croupier.master.services.authentication import Authenticator, Presented
from croupier.model.access import CLUSTER, Action, Permissions
from croupier.model.errors import CroupierError, PermissionDenied, Unauthenticated, Unavailable
from croupier.model.principal import Principal, PrincipalKind
from croupier.net.credentials import BEARER
from croupier.net.errors import STATUS

if TYPE_CHECKING:  # aiohttp
    from croupier.process.http.credentials import HttpCredential

# The name of such a request in the audit log.
METHOD: Final = "HTTP/metrics"
_FOLLOWS: Final = (
    "this master follows and knows no tokens: scrape it with a client certificate, or with the"
    " token in --metrics-token-file"
)


class MetricsReaders:
    """Checks credentials of requests for metrics."""

    def __init__(
        self,
        authenticator: Authenticator,
        permissions: Callable[[Principal], Permissions | None],
        audit: Audit,
    ) -> None:
        """`permissions` returns what a principal may do; None while this master follows."""
        self._authenticator, self._permissions = authenticator, permissions
        self._audit = audit

    async def check(self, presented: HttpCredential) -> None:
        """Check that the sender of a request may read metrics.

        Raises:
            Unauthenticated: if it has no valid credential.
            PermissionDenied: if no rule allows it.
            Unavailable: if this master cannot check the credential.
        """
        call = Call(METHOD, Caller(host=presented.host), object=str(CLUSTER))
        try:
            call.caller = await self._authenticator.authenticate(as_presented(presented))
            self._check_permission(call.caller)
        except (Unauthenticated, PermissionDenied) as error:
            result = STATUS[_kind_of(error)].name
            self._audit.write(call, AuditOutcome.DENY, result)
            raise

    def _check_permission(self, caller: Caller) -> None:
        permissions = self._permissions(caller.principal)
        if permissions is not None:
            if not permissions.decide(Action.READ_METRICS, CLUSTER):
                raise PermissionDenied(
                    f"{caller.principal} may not {Action.READ_METRICS.value}; an administrator can"
                    " add a rule with `croupier access`"
                )
        elif caller.kind is CredentialKind.UNCHECKED:
            raise Unavailable(_FOLLOWS)
        elif not caller.principal.name.startswith(f"{PrincipalKind.CLIENT.value}/"):
            raise PermissionDenied(f"{caller.principal} is no client")


def _kind_of(error: Unauthenticated | PermissionDenied) -> type[CroupierError]:
    return Unauthenticated if isinstance(error, Unauthenticated) else PermissionDenied


def as_presented(presented: HttpCredential) -> Presented:
    """Return what an HTTP request presents, as the authenticator takes it."""
    token, der = presented.token, presented.certificate
    return Presented(
        presented.host,
        () if token is None else (BEARER + token,),
        [uri.encode() for uri in presented.uris],
        ssl.DER_cert_to_PEM_cert(der).encode() if der else b"",
    )
