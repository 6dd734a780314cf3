"""Audit lines of calls."""

from __future__ import annotations

from typing import Final

import grpc

from croupier.master.access.audit import AuditLine, AuditOutcome
from croupier.master.access.caller import Call

_PACKAGE: Final = "/croupier.v1."
_DENIED: Final = (
    grpc.StatusCode.UNAUTHENTICATED.name,
    grpc.StatusCode.PERMISSION_DENIED.name,
    grpc.StatusCode.RESOURCE_EXHAUSTED.name,
)
_NOT_FOUND: Final = grpc.StatusCode.NOT_FOUND.name


def short_name(method: str) -> str:
    """Return `Service/Method` of a method's full name."""
    return method.removeprefix(_PACKAGE)


def outcome_of(result: str) -> AuditOutcome:
    """Return the decision about a call by the name of its status."""
    if result in _DENIED:
        return AuditOutcome.DENY
    return AuditOutcome.UNDECIDED if result == _NOT_FOUND else AuditOutcome.ALLOW


def line_of(call: Call, outcome: AuditOutcome, result: str, time_ms: int) -> AuditLine:
    """Return the audit line of a call."""
    caller = call.caller
    return AuditLine(
        time_ms,
        caller.principal.name,
        caller.kind.value,
        caller.credential_id,
        caller.host,
        short_name(call.method),
        call.object,
        outcome,
        call.rule,
        result,
        call.size,
        detail=call.detail,
    )
