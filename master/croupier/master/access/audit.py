"""The audit log: one JSON line for every call that changes something, and every refused call.

Rule: a line states the principal, the call, its objects, the decision and its rule. It holds no
secrets and no bodies of requests. docs/security.md documents the fields; a change of their meaning
raises `VERSION`. No fault of the disk delays a call, or ends the master or the log: see
`LineWriter`.
"""

from __future__ import annotations

import json
import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Final

import grpc

from croupier.master.access.caller import Call, CredentialKind
from croupier.master.eventlog import files
from croupier.model.clock import Clock
from croupier.model.errors import Unavailable
from croupier.model.token_bucket import Bucket
from croupier.process.durable_files import os_errors_as, write_all
from croupier.process.logging import get_logger, time_text
from croupier.process.queue_writer import LineWriter

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

FILE_BYTES: Final = 64 * 1024 * 1024
# Files kept, the newest included.
FILES: Final = 16
CLOSE_S: Final = 5.0

Write = Callable[[int, bytes], None]

_log = get_logger("croupier.master")
_audit_log = get_logger("croupier.audit")


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


def line_fields(
    call: Call, outcome: AuditOutcome, result: str, time_ms: int
) -> dict[str, str | int]:
    """Return the fields of a line; a call on a stream has a name such as FrameworkService/ACCEPT.

    `result` is `OK`, or the name of the gRPC status or error; `time_ms` milliseconds since the
    epoch.
    """
    caller = call.caller
    fields: dict[str, str | int] = {
        "version": VERSION,
        "time": time_text(time_ms),
        "principal": caller.principal.name,
        "credential": caller.kind.value,
        "credential_id": caller.credential_id,
        "peer": caller.host,
        "method": short_name(call.method),
        "object": call.object[:MAX_OBJECT],
        "decision": outcome.value,
        "rule": call.rule,
        "result": result,
        "bytes": call.size,
    }
    if call.detail:
        fields["detail"] = call.detail[:MAX_DETAIL]
    return fields


class Audit:
    """Writes the audit lines of calls, to a file or the log; counts the `suppressed` ones."""

    def __init__(self, clock: Clock, file: AuditFile | None = None, *, is_on: bool) -> None:
        """Write to `file`; None: to the log of the master, as events."""
        self.is_on, self.suppressed = is_on, 0
        self._file, self._clock = file, clock
        self._refusals: OrderedDict[str, Bucket] = OrderedDict()

    def write(self, call: Call, outcome: AuditOutcome, result: str) -> None:
        """Write the line of a call, which says what the call is about now."""
        if not self.is_on:
            return
        is_anonymous = call.caller.kind is CredentialKind.NONE
        if is_anonymous and outcome is AuditOutcome.DENY and not self._is_due(call.caller.host):
            self.suppressed += 1
            return
        fields = line_fields(call, outcome, result, self._clock.wall_ms())
        if self._file is not None:
            self._file.put(fields)
        elif not call.is_routine:
            del fields["time"]
            _audit_log.info("audit", **fields)

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


class AuditFile:
    """Appends lines to a file, and begins another when it is large."""

    def __init__(self, path: Path, file_bytes: int = FILE_BYTES, write: Write = write_all) -> None:
        """Open the file for its owner alone; raises Unavailable if that fails, or it is no file."""
        self._path, self._file_bytes, self._write_all = path, file_bytes, write
        with os_errors_as(Unavailable, f"--audit-log {path}"):
            self._file = _open(path)
        self._lines = LineWriter("audit-log", self._write, self._on_failed, self._on_recovered)

    @property
    def lost(self) -> int:
        """The number of lines that could not be written."""
        return self._lines.lost

    def put(self, fields: Mapping[str, str | int]) -> None:
        """Queue a line, JSON in ASCII; count it as lost if the queue is full."""
        # Encoded here: while the thread computes, the event loop would wait for the interpreter.
        self._lines.put(json.dumps(fields, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Write the queue and close the file; block for at most 5 s."""
        if self._lines.close(CLOSE_S) and self._file >= 0:
            os.close(self._file)

    def _write(self, data: bytes) -> None:
        """Write the lines. Raises OSError if the disk is full or fails."""
        if self._file < 0:
            self._file = _open(self._path)
        self._write_all(self._file, data)
        if os.fstat(self._file).st_size >= self._file_bytes:
            self._begin_file()

    def _begin_file(self) -> None:
        """Rename the file, and delete the oldest ones beyond the limit."""
        file, self._file = self._file, -1
        os.close(file)
        files.make_room(self._path, FILES)

    def _on_failed(self, error: Exception) -> None:
        reason = str(getattr(error, "strerror", None) or repr(error))
        _log.error("audit_log_failed", path=str(self._path), reason=reason)

    def _on_recovered(self, lost: int) -> None:
        _log.warning("audit_log_recovered", path=str(self._path), lines_lost=lost)


def _open(path: Path) -> int:
    """Open a regular file for appending. Raises OSError if it is none, or cannot be opened."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError("it is not a regular file")
    return file
