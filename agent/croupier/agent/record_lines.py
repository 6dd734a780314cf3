"""Records as lines of a checkpoint, and the index of the lines that are current.

    CRC32 NUMBER BODY

Rule: each line has its own checksum and number. The first line has the format, as JSON; a body is
a message of `storage.proto` in base64. So damaged, missing and misplaced lines are detected, and
what follows them is found. An unfinished last line, left by a killed writer, has no line end and
does not count as damage.
"""

from __future__ import annotations

import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast
from zlib import crc32

from google.protobuf.message import DecodeError

from croupier.agent.core import records as r
from croupier.model.codec import Codec
from croupier.model.errors import CroupierError
from croupier.model.ids import Role
from croupier.model.task import Reason
from croupier.v1 import agent_pb2, task_pb2
from croupier.v1.storage_pb2 import CheckpointRecord
from croupier.wire.mapped import Both, mapped
from croupier.wire.store_position import position_from_wire, position_to_wire
from croupier.wire.task import status_from_wire, status_to_wire, task_from_wire, task_to_bytes

FORMAT: Final = 2
# Release 0.1 wrote bodies as JSON: such a checkpoint is converted once, when it is opened.
_JSON_FORMAT: Final = 1
_from_json = Codec().decoder(r.Record)
_PROGRAM = "croupier-agent-checkpoint"
# The most digits of a line's number.
_DIGITS = 18


class UnknownRecord(CroupierError):
    """A record of a kind that only a newer release has."""


def _task_to_wire(record: r.TaskRecord) -> CheckpointRecord.Task:
    return CheckpointRecord.Task(
        task=task_to_bytes(record.info),
        role=record.role,
        run=record.run,
        first=status_to_wire(record.first),
        proof=bytes.fromhex(record.proof),
    )


def _task_from_wire(wire: CheckpointRecord.Task) -> r.TaskRecord:
    info = task_from_wire(task_pb2.TaskInfo.FromString(wire.task))
    first = status_from_wire(wire.first)
    return r.TaskRecord(info, Role(wire.role), wire.run, first, wire.proof.hex())


# By the fields of the message.
_KINDS: Final[dict[str, tuple[type, Both]]] = {
    "agent": (r.AgentRecord, mapped(r.AgentRecord, CheckpointRecord.Agent)),
    "position": (
        r.PositionRecord,
        Both(
            lambda record: position_to_wire(record.position),
            lambda wire: r.PositionRecord(position_from_wire(wire)),
        ),
    ),
    "framework": (r.FrameworkRecord, mapped(r.FrameworkRecord, CheckpointRecord.Framework)),
    "forget_framework": (
        r.ForgetFramework, Both(lambda record: record.framework_id, r.ForgetFramework)
    ),
    "task_in_executor": (r.TaskRecord, Both(_task_to_wire, _task_from_wire)),
    "task": (r.TaskRecord, Both(_task_to_wire, _task_from_wire)),
    "update": (
        r.UpdateRecord,
        Both(
            lambda record: status_to_wire(record.status),
            lambda wire: r.UpdateRecord(status_from_wire(wire)),
        ),
    ),
    "kill": (r.KillRecord, mapped(r.KillRecord, CheckpointRecord.Kill, reason=Both(int, Reason))),
    "acknowledged": (
        r.AcknowledgedRecord, mapped(r.AcknowledgedRecord, agent_pb2.AcknowledgeUpdate)
    ),
    "void": (r.VoidRecord, mapped(r.VoidRecord, CheckpointRecord.TaskKey)),
    "forget_task": (r.ForgetTask, mapped(r.ForgetTask, CheckpointRecord.TaskKey)),
    "group": (r.GroupRecord, mapped(r.GroupRecord, CheckpointRecord.Group)),
    "forget_group": (r.ForgetGroup, mapped(r.ForgetGroup, CheckpointRecord.Group)),
}  # fmt: skip
_NAMES: Final = {cls: (name, both) for name, (cls, both) in _KINDS.items()}


def record_to_wire(record: r.Record) -> CheckpointRecord:
    """Return the message for `record`."""
    name, both = _NAMES[type(record)]
    if isinstance(record, r.TaskRecord) and record.info.executor_id:
        name = "task_in_executor"
    return CheckpointRecord(**{name: both.to_wire(record)})


def record_from_wire(wire: CheckpointRecord) -> r.Record:
    """Return the record in `wire`.

    Raises:
        UnknownRecord: if a newer release wrote it.
        InvalidRequest, ValueError: if a value in it is illegal.
        DecodeError: if the description of a task is damaged.
    """
    kind = wire.WhichOneof("record")
    if kind is None:
        raise UnknownRecord("a record of an unknown kind")
    return cast("r.Record", _KINDS[kind][1].from_wire(getattr(wire, kind)))


class Damaged(CroupierError):
    """A line that differs from what was written."""

    def __init__(self, number: int, why: str) -> None:
        """Describe the line; numbers count from 1."""
        super().__init__(f"line {number} {why}")
        self.number, self.why = number, why


class OtherFormat(CroupierError):
    """A log of a later format, or of another program."""


class Span(NamedTuple):
    """The place of a record's line in the log, in bytes."""

    begin: int
    end: int


@dataclass(slots=True)
class Reading:
    """The content of a log.

    Attributes:
        size: the size without an unfinished last line, in bytes.
        is_ended: whether the last line has a line end.
        damaged: damaged lines; only a lenient reading has any.
    """

    found: list[tuple[r.Record, Span]] = field(default_factory=list)
    size: int = 0
    is_ended: bool = True
    damaged: list[Damaged] = field(default_factory=list)
    format: int = FORMAT


def heading() -> bytes:
    """Return the first line."""
    return line(1, json.dumps({_PROGRAM: FORMAT}, separators=(",", ":")).encode())


def body_of(record: r.Record) -> bytes:
    """Return the record without number and checksum."""
    return b2a_base64(record_to_wire(record).SerializeToString(), newline=False)


def line(number: int, body: bytes) -> bytes:
    """Return a line; numbers count from 1."""
    counted = b"%d %s" % (number, body)
    return b"%08x %s\n" % (crc32(counted), counted)


def body_in(text: bytes) -> bytes:
    """Return the body of an intact line."""
    return text.split(b" ", 2)[2].removesuffix(b"\n")


def read_lines(data: bytes, *, lenient: bool = False) -> Reading:
    """Read a whole log; a `lenient` reading lists damaged lines and leaves them out.

    Raises:
        Damaged: if a line is damaged and the reading is not lenient.
        OtherFormat: if the log is of a later format, or of another program.
    """
    reading = Reading()

    def damage(number: int, why: str) -> None:
        error = Damaged(number, why)
        if not lenient:
            raise error
        reading.damaged.append(error)

    expected, has_heading = 1, False
    for number, (begin, text, is_whole) in enumerate(_split(data), start=1):
        content = checked(text)
        if content is None and not is_whole:
            # Only the line end may be wrong.
            content = checked(text[:-1])
            if content is None:
                break
            text = text[:-1]
        reading.size = begin + len(text) + 1
        reading.is_ended = is_whole
        if content is None:
            damage(number, "is damaged")
            expected += 1
            continue
        if content[0] != expected:
            damage(number, f"has the number {content[0]} and not {expected}")
        expected = content[0] + 1
        if content[0] == 1:
            has_heading = True
            reading.format = _checked_format(content[1])
            continue
        try:
            record = record_in(content[1], reading.format)
        except (CroupierError, DecodeError, ValueError, RecursionError) as error:
            if isinstance(error, UnknownRecord) and not lenient:
                raise OtherFormat(
                    f"of a newer release (line {number}: {error}): use the release that wrote it"
                ) from None
            damage(number, f"is of no known form: {str(error)[:200]}")
        else:
            reading.found.append((record, Span(begin, begin + len(text))))
    if not has_heading:
        damage(1, "is not that of a checkpoint")
    return reading


def record_in(body: bytes, log_format: int) -> r.Record:
    """Return the record in the body of a line.

    Raises CroupierError, DecodeError, ValueError or RecursionError if there is none.
    """
    if log_format == _JSON_FORMAT:
        return cast("r.Record", _from_json(json.loads(body)))
    return record_from_wire(CheckpointRecord.FromString(a2b_base64(body)))


def _split(data: bytes) -> Iterator[tuple[int, bytes, bool]]:
    """Yield the beginning of each line, its text, and whether it has a line end."""
    begin = 0
    while begin < len(data):
        end = data.find(b"\n", begin)
        if end < 0:
            yield begin, data[begin:], False
            return
        yield begin, data[begin:end], True
        begin = end + 1


def checked(text: bytes) -> tuple[int, bytes] | None:
    """Return number and body of a line; None if it is damaged."""
    parts: Sequence[bytes] = text.split(b" ", 2)
    if len(parts) != 3 or text[:9] != b"%08x " % crc32(text[9:]):
        return None
    if not parts[1].isdigit() or len(parts[1]) > _DIGITS:
        return None
    return int(parts[1]), parts[2]


def _checked_format(body: bytes) -> int:
    try:
        version = json.loads(body).get(_PROGRAM)
    except (ValueError, AttributeError):
        version = None
    if type(version) is not int or not _JSON_FORMAT <= version <= FORMAT:
        raise OtherFormat(
            f"of format {str(version)[:20]}; this agent reads up to {FORMAT}: use the newer release"
            " that wrote it"
            if type(version) is int and version > FORMAT
            else f"not a checkpoint of croupier-agent: it begins with {body[:80]!r}"
        )
    return version


@dataclass(slots=True)
class CurrentRecords:
    """The spans of current records by subject and part, and their total size in bytes."""

    spans: dict[str, dict[str, Span]] = field(default_factory=dict)
    size: int = 0

    def add(self, record: r.Record, span: Span) -> None:
        """Add the next record of the log; it may replace another, or all of its subject."""
        place = r.place_of(record)
        if not r.forgets(record):
            self.put(place, span)
            if isinstance(record, r.AcknowledgedRecord):
                self._drop_acknowledged(place[0], record.sequence)
            return
        gone = self.spans.pop(place[0], {})
        self.size -= sum(end - begin for begin, end in gone.values())

    def _drop_acknowledged(self, subject: str, sequence: int) -> None:
        """Drop the acknowledged updates of a task, but not its latest one: it has its state."""
        parts = self.spans[subject]
        numbers = [int(part) for part in parts if part.isdigit()]
        for number in numbers:
            if number <= sequence and number != max(numbers):
                begin, end = parts.pop(str(number))
                self.size -= end - begin

    def put(self, place: r.Place, span: Span) -> None:
        """Add the span of a record, in place of an earlier one."""
        subject, part = place
        parts = self.spans.setdefault(subject, {})
        before = parts.get(part)
        if before is not None:
            self.size -= before.end - before.begin
        parts[part] = span
        self.size += span.end - span.begin

    def in_order(self) -> list[tuple[r.Place, Span]]:
        """Return all spans in the order of the log. O(n log n)."""
        spans = [
            ((subject, part), span)
            for subject, parts in self.spans.items()
            for part, span in parts.items()
        ]
        return sorted(spans, key=lambda each: each[1])
