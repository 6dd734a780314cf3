"""What every call passes before its handler, by gRPC and by HTTP alike.

In this order: the caller is authenticated, its rate is checked, what the call requires is checked;
after the handler the audit line is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import grpc

from croupier.master.access.audit import Audit, AuditOutcome, outcome_of, short_name
from croupier.master.access.caller import Call, Caller
from croupier.master.access.rate_limits import RateExceeded, RateLimiter, Usage
from croupier.master.services.authentication import (
    AuthenticationFailed,
    Authenticator,
    Presented,
)
from croupier.master.services.requirements import Requirement
from croupier.model.access import Permissions
from croupier.model.errors import CroupierError, PermissionDenied
from croupier.model.principal import Principal
from croupier.net.errors import nearest_status

_STATUS: Final = grpc.StatusCode


class Refusals:
    """Counts of refused calls, for metrics.

    Attributes:
        unauthenticated: calls without a valid credential, by reason.
        denied: calls that no rule allows, by method.
    """

    def __init__(self) -> None:
        self.unauthenticated: Counter[str] = Counter()
        self.denied: Counter[str] = Counter()


class Checks:
    """Checks calls.

    Attributes:
        is_on: whether callers are authenticated.
        refusals: counts of refused calls.
        limiter: the rates of callers.
        permissions: returns what a principal may do; None while this master follows.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        permissions: Callable[[Principal], Permissions | None],
        limiter: RateLimiter,
        audit: Audit,
    ) -> None:
        self.is_on, self.limiter, self.permissions = authenticator.is_on, limiter, permissions
        self.refusals = Refusals()
        self._authenticator, self._audit = authenticator, audit

    async def authenticate(self, call: Call, host: str, presented: Callable[[], Presented]) -> None:
        """Set the caller of the call, which comes from `host`.

        Raises:
            CroupierError: if authentication is on, and the call has no valid credential.
        """
        call.caller = Caller(host=host)
        if self.is_on:
            try:
                call.caller = await self._authenticator.authenticate(presented())
            except AuthenticationFailed as error:
                self.refusals.unauthenticated[error.reason] += 1
                await self.limiter.failed(host)
                raise
            if not call.caller.is_stored:
                await self.limiter.failed(host)

    async def admit(self, call: Call) -> Usage | None:
        """Count an authenticated call with one request; None: callers are not limited.

        Raises:
            RateExceeded: if the caller makes too many calls.
        """
        return await self.limiter.admit(call.caller.rate_key) if self.is_on else None

    def require(self, call: Call, requirement: Requirement | None, request: Any) -> None:
        """Check what the call requires; a stream has no request yet.

        Raises:
            PermissionDenied: if the caller may not make it.
            AuthenticationFailed: if its certificate was revoked since it was authenticated, or this
                master has begun to lead since then.
        """
        self._authenticator.check_revoked(call.caller)
        if requirement is not None and request is not None:
            call.object = requirement.object_of(request)
        if requirement is None:
            raise PermissionDenied(f"no rule of this master covers {short_name(call.method)}")
        permissions = self.permissions(call.caller.principal)
        if permissions is not None:
            requirement.check(call, request, permissions)

    def ended(self, call: Call, requirement: Requirement | None, result: str) -> None:
        """Count a call if it is refused, and write its audit line if it needs one.

        Args:
            call: the call.
            requirement: of its method.
            result: the name of its status.
        """
        if result == _STATUS.PERMISSION_DENIED.name:
            self.refusals.denied[short_name(call.method)] += 1
        if not self._audit.is_on:
            return
        outcome = outcome_of(result)
        is_change = requirement is not None and requirement.is_change
        # A follower decides nothing but who is not authenticated.
        leads = self.permissions(call.caller.principal) is not None
        if (leads or outcome is AuditOutcome.DENY) and (
            is_change or outcome is not AuditOutcome.ALLOW
        ):
            self._audit.write(call, outcome, result)


def status_of(error: CroupierError) -> grpc.StatusCode:
    """Return the status of a call that fails with `error`."""
    if isinstance(error, AuthenticationFailed):
        return _STATUS.UNAUTHENTICATED
    if isinstance(error, RateExceeded):
        return _STATUS.RESOURCE_EXHAUSTED
    return nearest_status(error)
