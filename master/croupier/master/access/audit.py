"""The audit log: one JSON line for every call that changes something, and every refused call.

Rule: a line states the principal, the call, its objects, the decision and its rule. It holds no
secrets and no bodies of requests. docs/security.md documents the fields; a change of their meaning
raises `VERSION`.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from croupier.master.access.rate_limits import Bucket
from croupier.model.clock import Clock
from croupier.process.logging import get_logger, time_text

VERSION: Final = 2
MAX_OBJECT: Final = 512
MAX_DETAIL: Final = 4096
# Lines of refused calls of one address without a credential, so that they cannot displace others.
REFUSALS_PER_S, REFUSALS_BURST = 5.0, 50.0
MOST_ADDRESSES: Final = 1_000

_log = get_logger("croupier.audit")


class AuditOutcome(Enum):
    """The decision about a call. UNDECIDED: its object does not exist, or is not visible."""

    ALLOW = "allow"
    DENY = "deny"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One line.

    Attributes:
        time_ms: milliseconds since the epoch.
        principal: empty if the caller is not authenticated.
        credential: its kind, such as "token".
        credential_id: no secret; empty without a credential.
        peer: the caller's address, without the port.
        method: such as `OperatorService/KillTask`; calls on a stream are named
            `FrameworkService/ACCEPT`.
        object: such as `agent:a1`; empty if the call is about none.
        rule: the rule that allowed it; empty if none was needed or none allows it.
        result: `OK`, or the name of the gRPC status or error.
        size: bytes of the request.
        is_routine: whether it is one of many in normal operation: only an own file has it.
        detail: of a command beside a task: what was run, or how it ended; else empty.
    """

    time_ms: int
    principal: str
    credential: str
    credential_id: str
    peer: str
    method: str
    object: str
    outcome: AuditOutcome
    rule: str
    result: str
    size: int
    is_routine: bool = False
    detail: str = ""

    def fields(self) -> dict[str, str | int]:
        """Return the fields of the line."""
        fields: dict[str, str | int] = {
            "version": VERSION,
            "time": time_text(self.time_ms),
            "principal": self.principal,
            "credential": self.credential,
            "credential_id": self.credential_id,
            "peer": self.peer,
            "method": self.method,
            "object": self.object[:MAX_OBJECT],
            "decision": self.outcome.value,
            "rule": self.rule,
            "result": self.result,
            "bytes": self.size,
        }
        if self.detail:
            fields["detail"] = self.detail[:MAX_DETAIL]
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

    def write(self, make: Callable[[int], AuditLine]) -> None:
        """Write the line that `make` returns for a time in milliseconds since the epoch."""
        if self._sink is None:
            return
        line = make(self._clock.wall_ms())
        if (
            not line.credential
            and line.outcome is AuditOutcome.DENY
            and not self._is_due(line.peer)
        ):
            self.suppressed += 1
            return
        self._sink.put(line)

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
