"""Conversion of records to lines of a checkpoint, and back.

    CRC32 NUMBER JSON

Rule: each line has its own checksum and number, and the first line has the format. So damaged,
missing and misplaced lines are detected. An unfinished last line, left by a killed writer, has no
line end and does not count as damage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from croupier.agent.core import records as r
from croupier.model.codec import Codec, Undecodable, UnknownTag
from croupier.model.errors import CroupierError
from croupier.model.tags import Kind, Table

FORMAT = 1
_PROGRAM = "croupier-agent-checkpoint"

# The most digits of a line's number.
_DIGITS = 18

# The table of the format. Tags of classes that other formats record too stand beside these.
CHECKPOINT: Final = Table(
    (
        Kind("AgentRecord", r.AgentRecord, "agent_id boot_id master_epoch incomplete cluster"),
        Kind("PositionRecord", r.PositionRecord, "position"),
        Kind("FrameworkRecord", r.FrameworkRecord, "framework_id epoch"),
        Kind("ForgetFramework", r.ForgetFramework, "framework_id"),
        Kind("TaskRecord", r.TaskRecord, "info role run first proof"),
        Kind("UpdateRecord", r.UpdateRecord, "status"),
        Kind("KillRecord", r.KillRecord, "framework_id task_id grace_ms reason"),
        Kind("AcknowledgedRecord", r.AcknowledgedRecord, "framework_id task_id sequence"),
        Kind("VoidRecord", r.VoidRecord, "framework_id task_id"),
        Kind("ForgetTask", r.ForgetTask, "framework_id task_id"),
    )
)
_codec = Codec(CHECKPOINT)
_encode = _codec.encoder(r.Record)
_decode = _codec.decoder(r.Record)
_to_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Damaged(CroupierError):
    """A line that differs from what was written."""

    def __init__(self, number: int, why: str) -> None:
        """Describe the line; numbers count from 1."""
        super().__init__(f"line {number} {why}")
        self.number, self.why = number, why


class OtherFormat(CroupierError):
    """A log of a later format, or of another program."""


@dataclass(frozen=True, slots=True)
class Found:
    """A record and the place of its line, in bytes."""

    record: r.Record
    begin: int
    end: int


@dataclass(slots=True)
class Reading:
    """The content of a log.

    Attributes:
        found: the records, in order.
        size: the size without an unfinished last line, in bytes.
        is_ended: whether the last line has a line end.
        damaged: damaged lines; only a lenient reading has any.
    """

    found: list[Found] = field(default_factory=list)
    size: int = 0
    is_ended: bool = True
    damaged: list[Damaged] = field(default_factory=list)


def heading() -> bytes:
    """Return the first line."""
    return line(1, _to_json({_PROGRAM: FORMAT}).encode())


def body_of(record: r.Record) -> bytes:
    """Return the record as JSON, without number and checksum."""
    return _to_json(_encode(record)).encode()


def line(number: int, body: bytes) -> bytes:
    """Return a line; numbers count from 1."""
    counted = b"%d %s" % (number, body)
    return b"%08x %s\n" % (crc32(counted), counted)


def body_in(text: bytes) -> bytes:
    """Return the JSON of an intact line."""
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
            _check_format(content[1])
            continue
        try:
            record = _decode(json.loads(content[1]))
        except (Undecodable, ValueError, RecursionError) as error:
            if isinstance(error, UnknownTag) and not lenient:
                raise OtherFormat(
                    f"of a newer release (line {number}: {error}): use the release that wrote it"
                ) from None
            damage(number, f"is of no known form: {str(error)[:200]}")
        else:
            reading.found.append(Found(record, begin, begin + len(text)))
    if not has_heading:
        damage(1, "is not that of a checkpoint")
    return reading


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


def _check_format(body: bytes) -> None:
    try:
        version = json.loads(body).get(_PROGRAM)
    except (ValueError, AttributeError):
        version = None
    if version != FORMAT:
        raise OtherFormat(
            f"of format {str(version)[:20]}; this agent reads only {FORMAT}: use the newer release"
            " that wrote it"
            if type(version) is int and version > FORMAT
            else f"not a checkpoint of croupier-agent: it begins with {body[:80]!r}"
        )
