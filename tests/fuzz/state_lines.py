"""Lines and rows of durable formats, given to their decoders in this process.

A decoder may refuse a document by an error of Croupier's; any other exception is a finding.
"""

from __future__ import annotations

import json
import random
from binascii import b2a_base64
from collections.abc import Callable
from typing import Any, Final, cast
from zlib import crc32

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from croupier.agent import record_lines
from croupier.agent.core.recovery import recovered
from croupier.master.allocator import Allocator, Rules, policies
from croupier.master.core.registry import Registry
from croupier.master.core.settings import Settings
from croupier.master.core.state_recovery import recover_state
from croupier.master.eventlog import codec as event_lines
from croupier.master.eventlog.lines import LOGGED, LogEntry
from croupier.master.store import rows as store_rows
from croupier.model.errors import CroupierError
from croupier.model.resources import Resources
from croupier.v1.storage_pb2 import CheckpointRecord, TaskRecord
from croupier.v1.task_pb2 import TaskInfo
from tests.fuzz.attack import Attack, Problem
from tests.fuzz.cases import Case
from tests.fuzz.documents import Documents
from tests.fuzz.messages import Messages
from tests.fuzz.values import Values
from tests.fuzz.wire_bytes import damaged
from tests.upgrade.tags import CODEC, EVENT_LOG

# Records of one registry, or lines of one checkpoint.
MOST_RECORDS: Final = 12
_TOTAL: Final = Resources.parse("cpus:4;mem:8GB")
# A probe of each kind of damage: to the JSON document, or to the bytes of its line.
_TO_DOCUMENT, _TO_BYTES = 0.25, 0.1

NAME: Final = "records of durable formats"
AT_ONCE: Final = 20

# What a case was, for the report of a finding.
Tried = bytes


class StateLines:
    """A source of cases; each is decoded when it is drawn.

    Attributes:
        tried: the bytes of the last case.
    """

    def __init__(self, rng: random.Random, values: Values) -> None:
        self._rng = rng
        self._documents, self._messages = Documents(rng, values, CODEC), Messages(rng, values)
        self._formats: list[Callable[[], int]] = [self._store, self._checkpoint, self._event_log]
        self.tried: Tried = b""

    def run(self) -> int:
        """Decode the records of one case; return their number.

        Raises:
            Exception: an error of a decoder that is no refusal.
        """
        return self._rng.choice(self._formats)()

    def _store(self) -> int:
        """Decode rows, and begin a term on those that are legal."""
        registry, rows = Registry(), self._rows()
        for kind, body in rows:
            self.tried = kind.encode() + body
            try:
                registry.apply(store_rows.decode(kind, body))
            except CroupierError:
                continue
        allocator = Allocator(policies.make("drf", 0), Rules(), {})
        try:
            recover_state(registry, "fuzz-1", Settings(), allocator, 0.0)
        except CroupierError:
            pass
        except Exception:
            self.tried = repr(rows).encode()
            raise
        return len(rows)

    def _rows(self) -> list[tuple[str, bytes]]:
        kinds = list(store_rows.KINDS.values())
        rows = []
        for _ in range(self._rng.randint(1, MOST_RECORDS)):
            kind = self._rng.choice(kinds)
            rows.append((kind.tag, self._message(kind.message)))
        return rows

    def _checkpoint(self) -> int:
        """Read a log, and recover an agent from its records."""
        lines = [record_lines.heading()]
        for number in range(2, self._rng.randint(3, MOST_RECORDS)):
            text = b2a_base64(self._message(CheckpointRecord), newline=False)
            lines.append(record_lines.line(number, text))
        self.tried = data = self._maybe_damaged(b"".join(lines))
        for is_lenient in (False, True):
            try:
                reading = record_lines.read_lines(data, lenient=is_lenient)
                records = [record for record, _ in reading.found]
                recovered(records, _TOTAL, incomplete=bool(reading.damaged), lenient=is_lenient)
            except CroupierError:
                continue
        return len(lines) - 1

    def _event_log(self) -> int:
        cls = self._rng.choice(EVENT_LOG)
        document = self._drawn(cls)
        if cls in LOGGED:
            line: Any = {"at": self._rng.choice((0, 1.5, 1e300)), "event": document}
            if isinstance(document, dict):
                line["event"] = {"kind": CODEC.name(cls), **document}
        else:
            line = {CODEC.name(cls): document}
        self.tried = text = self._maybe_damaged(_sealed(line))
        try:
            read = event_lines.read_line(text)
        except CroupierError:
            return 1
        if isinstance(read, LogEntry):
            event_lines.event_encoder()(read.event)
        return 1

    def _message(self, cls: type[Message]) -> bytes:
        message: Any = self._messages.message(cast("Descriptor", cls.DESCRIPTOR))
        task = self._messages.message(TaskInfo.DESCRIPTOR).SerializeToString()
        if isinstance(message, TaskRecord):
            message.task = task
        elif isinstance(message, CheckpointRecord) and message.HasField("task"):
            message.task.task = task
        return self._maybe_damaged(message.SerializeToString())

    def _drawn(self, hint: Any) -> Any:
        document = self._documents.document(hint)
        while self._rng.random() < _TO_DOCUMENT:
            document = self._documents.damaged(document)
        return document

    def _maybe_damaged(self, data: bytes) -> bytes:
        return damaged(data, self._rng) if self._rng.random() < _TO_BYTES else data


def _json(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))


def _sealed(line: dict[str, Any]) -> bytes:
    """Return a line with its checksum, where the format puts it."""
    if isinstance(line.get("head"), dict):
        covered, end = _json(line)[:-2].encode(), b"}}"
    else:
        covered, end = _json(line)[:-1].encode(), b"}"
    return b'%s,"crc":"%08x"%s\n' % (covered, crc32(covered), end)


class StateAttack(Attack):
    """`StateLines` beside the other attacks."""

    def __init__(self, seed: int) -> None:
        super().__init__(NAME, seed)

    @property
    def target(self) -> str:
        """The name of the attack."""
        return NAME

    def accepts(self, target: str) -> bool:
        """Return false: findings become tests of the decoders."""
        return False

    async def run(self, case: Case) -> None:
        """Decode the records of some cases."""
        lines = StateLines(self.rng, self.values)
        for _ in range(AT_ONCE):
            try:
                self.sent += lines.run()
            except Exception as error:
                case.sent.append(lines.tried)
                raise Problem(f"a decoder raised {error!r}") from error

    async def replay(self, case: Case) -> None:
        """Do nothing."""
