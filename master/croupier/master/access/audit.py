"""The audit log: one JSON line for every call that changes something, and every refused call.

Rule: a line states the principal, the call, its objects, the decision and its rule. It holds no
secrets and no bodies of requests. docs/security.md documents the fields; a change of their meaning
raises `VERSION`.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

import grpc

from croupier.master.access.caller import Call, CredentialKind
from croupier.master.access.rate_limits import Bucket
from croupier.model.clock import Clock
from croupier.process.logging import get_logger, time_text

VERSION: Final = 2
MAX_OBJECT: Final = 512
MAX_DETAIL: Final = 4096
# Lines of refused calls of one address without a credential, so that they cannot displace others.
REFUSALS_PER_S, REFUSALS_BURST = 5.0, 50.0
MOST_ADDRESSES: Final = 1_000
_PACKAGE: Final = "/croupier.v1."
_DENIED: Final = (
    grpc.StatusCode.UNAUTHENTICATED.name,
    grpc.StatusCode.PERMISSION_DENIED.name,
    grpc.StatusCode.RESOURCE_EXHAUSTED.name,
)
_NOT_FOUND: Final = grpc.StatusCode.NOT_FOUND.name

_log = get_logger("croupier.audit")


class AuditOutcome(Enum):
    """The decision about a call. UNDECIDED: its object does not exist, or is not visible."""

    ALLOW = "allow"
    DENY = "deny"
    UNDECIDED = "undecided"


def short_name(method: str) -> str:
    """Return `Service/Method` of a method's full name."""
    return method.removeprefix(_PACKAGE)


def outcome_of(result: str) -> AuditOutcome:
    """Return the decision about a call by the name of its status."""
    if result in _DENIED:
        return AuditOutcome.DENY
    return AuditOutcome.UNDECIDED if result == _NOT_FOUND else AuditOutcome.ALLOW


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One line about a call; a call on a stream has a method such as `FrameworkService/ACCEPT`.

    Attributes:
        time_ms: milliseconds since the epoch.
        result: `OK`, or the name of the gRPC status or error.
        is_routine: whether it is one of many in normal operation: only an own file has it.
    """

    time_ms: int
    call: Call
    outcome: AuditOutcome
    result: str
    is_routine: bool = False

    def fields(self) -> dict[str, str | int]:
        """Return the fields of the line."""
        call, caller = self.call, self.call.caller
        fields: dict[str, str | int] = {
            "version": VERSION,
            "time": time_text(self.time_ms),
            "principal": caller.principal.name,
            "credential": caller.kind.value,
            "credential_id": caller.credential_id,
            "peer": caller.host,
            "method": short_name(call.method),
            "object": call.object[:MAX_OBJECT],
            "decision": self.outcome.value,
            "rule": call.rule,
            "result": self.result,
            "bytes": call.size,
        }
        if call.detail:
            fields["detail"] = call.detail[:MAX_DETAIL]
        return fields

    def encoded(self) -> bytes:
        """Return the line as JSON in ASCII, with its line break."""
        return json.dumps(self.fields(), separators=(",", ":")).encode() + b"\n"


class AuditSink(Protocol):
    """Where lines go. `put` never waits and never raises."""

    def put(self, line: AuditLine) -> None:
        """Write a line, or count it as lost."""
        ...


class MasterLogSink:
    """Writes lines as events to the master's own log."""

    def put(self, line: AuditLine) -> None:
        """Log a line; routine ones are left out."""
        if not line.is_routine:
            fields = line.fields()
            del fields["time"]
            _log.info("audit", **fields)


class Audit:
    """Decides which lines are written.

    Attributes:
        is_on: whether calls are audited.
        suppressed: lines of refused calls without a credential that were left out.
    """

    def __init__(self, sink: AuditSink | None, clock: Clock) -> None:
        """Write to `sink`; None: write nothing."""
        self.is_on = sink is not None
        self.suppressed = 0
        self._sink, self._clock = sink, clock
        self._refusals: OrderedDict[str, Bucket] = OrderedDict()

    def write(
        self, call: Call, outcome: AuditOutcome, result: str, *, is_routine: bool = False
    ) -> None:
        """Write the line of a call, which says what the call is about now."""
        if self._sink is None:
            return
        is_anonymous = call.caller.kind is CredentialKind.NONE
        if is_anonymous and outcome is AuditOutcome.DENY and not self._is_due(call.caller.host):
            self.suppressed += 1
            return
        self._sink.put(AuditLine(self._clock.wall_ms(), call, outcome, result, is_routine))

    def _is_due(self, address: str) -> bool:
        now = self._clock.now()
        bucket = self._refusals.pop(address, None)
        if bucket is None:
            bucket = Bucket(REFUSALS_PER_S, REFUSALS_BURST, now)
        self._refusals[address] = bucket
        if len(self._refusals) > MOST_ADDRESSES:
            self._refusals.popitem(last=False)
        if bucket.debt_s(now) > 0:
            return False
        bucket.take(1, now)
        return True
