"""The security of a master's services, over all of its terms.

`/metrics` is read by principals with the permission to read metrics. Refused requests have a line
in the audit log, as refused calls have. A master that follows does not know the rules. Then it
admits the certificate of any client of the cluster, because followers export nothing about
frameworks, agents and tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from croupier.master.access.audit import Audit, AuditFile, AuditOutcome, MasterLogSink
from croupier.master.access.caller import Call, Caller, CredentialKind
from croupier.master.access.rate_limits import RateLimiter
from croupier.master.services.authentication import Authenticator, Presented
from croupier.master.services.checks import Checks
from croupier.master.services.gate import Gate
from croupier.master.services.stream_guard import StreamGuards
from croupier.model.access import CLUSTER, Action, Permissions
from croupier.model.clock import Clock
from croupier.model.errors import (
    CroupierError,
    InvalidRequest,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from croupier.model.principal import Principal, PrincipalKind
from croupier.model.token import BearerToken
from croupier.net.credentials import create_token_file, make_token, read_token_file
from croupier.net.errors import STATUS
from croupier.process.logging import get_logger
from croupier.process.metric_families import Family

if TYPE_CHECKING:  # cyclopts, and the services
    from croupier.master.config import MasterConfig
    from croupier.master.leadership.term import Term
    from croupier.process.http.credentials import HttpCredential


# The name of such a request in the audit log.
METHOD: Final = "HTTP/metrics"
_FOLLOWS: Final = (
    "this master follows and knows no tokens: scrape it with a client certificate, or with the"
    " token in --metrics-token-file"
)

_log = get_logger("croupier.master")


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
            call.caller = await self._authenticator.authenticate(Presented.by_http(presented))
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


class Security:
    """Authentication, permission, limits and audit of calls.

    Attributes:
        authenticator: authenticates callers; HTTP may use it, too.
        checks: what every call passes, by gRPC and by HTTP.
        gate: the interceptor of gRPC.
        guards: of streams.
    """

    def __init__(
        self,
        config: MasterConfig,
        clock: Clock,
        term: Callable[[], Term | None],
        trust_domain: Callable[[], str],
    ) -> None:
        """Guard the terms that `term` returns; None while this master follows.

        Raises:
            InvalidRequest: if the file of the admin's token cannot be used, or the extra `oidc`
                is needed and not installed.
            Unavailable: if the audit log cannot be opened.
        """
        is_on = config.requires_auth
        self._term = term
        self._admin_token_file = config.admin_token_file if is_on else None
        self.file = None if config.audit_log is None else _open(config.audit_log)
        sink = self.file or (MasterLogSink() if is_on else None)
        self.audit = Audit(sink, clock)
        self.limiter = RateLimiter(config.rate_limits(), clock)
        verifier = config.oidc.verifier(clock) if is_on else None
        if verifier is not None:
            verifier.begin()
        self.authenticator = Authenticator(
            clock,
            lambda: None if (now := term()) is None else now.driver.state.tokens,
            is_on=is_on,
            trust_domain=trust_domain,
            admin_token=_admin_token(self._admin_token_file),
            is_mutual=config.tls.tls_ca is not None,
            verifier=verifier,
            revoked=lambda: () if (now := term()) is None else now.driver.state.access.revoked,
        )
        self.checks = Checks(self.authenticator, self.permissions, self.limiter, self.audit)
        self.gate = Gate(self.checks)
        self.guards = StreamGuards(self.limiter, self.audit, is_limited=is_on)

    def renew(self) -> None:
        """Read the file of the admin's token again.

        Raises:
            InvalidRequest: if it cannot be used.
        """
        self.authenticator.admin_token = _admin_token(self._admin_token_file)

    def close(self) -> None:
        """Write what is left of the audit log; block for at most 5 s."""
        if self.file is not None:
            self.file.close()

    def permissions(self, principal: Principal) -> Permissions | None:
        """Return what a principal may do; None while this master follows."""
        term = self._term()
        return None if term is None else term.driver.state.permissions(principal)


def _open(path: Path) -> AuditFile:
    return AuditFile(path.expanduser())


def _admin_token(path: Path | None) -> BearerToken | None:
    """Return the token in the file, which is made if there is none.

    Raises:
        InvalidRequest: if it cannot be read or made.
    """
    if path is None:
        return None
    path = path.expanduser()
    try:
        create_token_file(path, make_token())
        _log.info("admin_token_made", path=str(path))
    except FileExistsError:
        pass
    except OSError as error:
        raise InvalidRequest(f"--admin-token-file {path}: {error.strerror or error}") from None
    return read_token_file(path)


SECURITY: Final[tuple[Family[Security], ...]] = (
    Family(
        "authentication_failures",
        "Calls without a valid credential by reason: missing, malformed, unknown, expired,"
        " revoked, certificate or provider.",
        lambda security: security.checks.refusals.unauthenticated,
        ("reason",),
        is_counter=True,
    ),
    Family(
        "calls_denied",
        "Unary calls and streams that no rule allows, by method.",
        lambda security: security.checks.refusals.denied,
        ("method",),
        is_counter=True,
    ),
    Family(
        "rate_limited",
        "Unary calls and large messages refused, and pauses in reading streams, for the rate of"
        " their principal.",
        lambda security: {
            "refused": security.limiter.refused,
            "delayed": security.limiter.delayed,
        },
        ("outcome",),
        is_counter=True,
    ),
    Family(
        "audit_lines_lost",
        "Audit lines that were not written: the disk failed (failed), or one address sent too many"
        " calls without a credential (suppressed).",
        lambda security: {
            "failed": 0 if security.file is None else security.file.lost,
            "suppressed": security.audit.suppressed,
        },
        ("why",),
        is_counter=True,
    ),
)
