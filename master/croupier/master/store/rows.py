"""Records as rows: a kind, an id and a message of `storage.proto`. All stores share this format.

`_STORED` is the table of kinds. A `Forget` is stored by deleting the row of its id.

Rule: a field that this release does not know survives: it is kept when the record is written again.
A checksum covers kind, id and body, so a body cannot pass for that of another record.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Final, NamedTuple, cast

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from croupier.master.core import access_records as a
from croupier.master.core import records as r
from croupier.master.core import usage_records as u
from croupier.master.eventlog.codec import NAMES
from croupier.master.wire import records as wire
from croupier.model.codec import Codec, Undecodable
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.v1 import storage_pb2 as pb
from croupier.wire.mapped import Both

SCHEMA_VERSION: Final = 4
# Bytes before a sealed value.
PREFIX = 9

# The version in which records were JSON, as release 0.1 wrote them: they are converted once.
JSON_VERSION: Final = 3
# The event log has the same names.
_CODEC: Final = Codec(NAMES)


class NewerRecord(InvalidRequest):
    """A record of a kind that only a newer release has."""


class Row(NamedTuple):
    """A record as a store keeps it; without a body, the row of that kind and id is deleted."""

    kind: str
    id: str
    body: bytes | None


class Stored(NamedTuple):
    """A kind of row.

    Attributes:
        tag: the name of the kind.
        record: the class of its records.
        message: the class of their messages.
        both: converts records to messages, and back.
        id: the attributes that make the id of a row; empty for the only row of its kind.
        forget: the class that deletes a row; it has the same attributes.
    """

    tag: str
    record: type
    message: type[Message]
    both: Both
    id: tuple[str, ...] = ()
    forget: type | None = None


_STORED: Final = (
    Stored("master", r.MasterRecord, pb.MasterRecord, wire.MASTER),
    Stored("agent", r.AgentRecord, pb.AgentRecord, wire.AGENT, ("agent_id",), r.ForgetAgent),
    Stored(
        "framework", r.FrameworkRecord, pb.FrameworkRecord, wire.FRAMEWORK, ("framework_id",),
        r.ForgetFramework,
    ),
    Stored("role", r.RoleRecord, pb.RoleRecord, wire.ROLE, ("role",), r.ForgetRole),
    Stored(
        "task", r.TaskRecord, pb.TaskRecord, wire.TASK, ("framework_id", "task_id"), r.ForgetTask
    ),
    Stored("hold", r.HoldRecord, pb.HoldRecord, wire.HOLD, ("hold_id",), r.ForgetHold),
    Stored(
        "reservation", r.ReservationRecord, pb.ReservationRecord, wire.RESERVATION,
        ("reservation_id",), r.ForgetReservation,
    ),
    Stored(
        "usage", u.UsageRecord, pb.UsageRecord, wire.USAGE,
        ("start_ms", "length_ms", "role", "framework", "principal", "label"), u.ForgetUsage,
    ),
    Stored("group", a.GroupRecord, pb.GroupRecord, wire.GROUP, ("name",), a.ForgetGroup),
    Stored("rule", a.RuleRecord, pb.RuleRecord, wire.RULE, ("name",), a.ForgetRule),
    Stored("token", a.TokenRecord, pb.TokenRecord, wire.TOKEN, ("token_id",), a.ForgetToken),
    Stored(
        "revoked_key", a.RevokedKeyRecord, pb.RevokedKeyRecord, wire.REVOKED_KEY, ("key_id",),
        a.ForgetRevokedKey,
    ),
)  # fmt: skip


class Rows:
    """Conversion of the records of one store; it keeps fields that this release does not know."""

    def __init__(self) -> None:
        self._unknown: dict[tuple[str, str], bytes] = {}

    def decode(self, kind: str, body: bytes) -> r.Record:
        """Return the record of the kind `kind` that `body` holds.

        Raises NewerRecord if a newer release wrote it; InvalidRequest if it is not such a record;
        the text quotes nothing of it.
        """
        stored = KINDS.get(kind)
        if stored is None:
            raise NewerRecord(f"records of the kind {kind[:80]!r} are not known to this release")
        try:
            message = stored.message.FromString(body)
            record = cast("r.Record", stored.both.from_wire(message))
        except (InvalidRequest, ValueError, DecodeError) as error:
            why = "it is damaged" if isinstance(error, DecodeError) else str(error)
            raise InvalidRequest(f"not a record of the kind {kind!r}: {why}") from None
        if len(UnknownFieldSet(message)):
            for field, _ in message.ListFields():
                message.ClearField(field.name)
            self._unknown[kind, _id_of(stored, record)] = message.SerializeToString()
        return record

    def encode_latest(self, records: Iterable[r.Record]) -> list[Row]:
        """Return the rows of `records`; the last record of a kind and id wins."""
        latest = {key_of(each): each for each in records}
        return list(map(self.encode, latest.values()))

    def encode(self, record: r.Record) -> Row:
        """Return the row of `record`; for a `Forget`, the row to delete."""
        row = encode(record)
        if not self._unknown:
            return row
        if row.body is None:
            self._unknown.pop(row[:2], None)
            return row
        return row._replace(body=row.body + self._unknown.get(row[:2], b""))


def encode(record: r.Record) -> Row:
    """Return the row of a record without unknown fields; for a `Forget`, the row to delete."""
    stored = _KIND_OF[type(record)]
    is_kept = type(record) is stored.record
    body = stored.both.to_wire(record).SerializeToString() if is_kept else None
    return Row(stored.tag, _id_of(stored, record), body)


def decode(kind: str, body: bytes) -> r.Record:
    """Return the record of the kind `kind` that `body` holds; raises as `Rows.decode`."""
    return Rows().decode(kind, body)


def key_of(record: r.Record) -> tuple[str, str]:
    """Return kind and id of the row of `record`."""
    stored = _KIND_OF[type(record)]
    return stored.tag, _id_of(stored, record)


def _id_of(stored: Stored, record: r.Record) -> str:
    return _joined(str(getattr(record, name)) for name in stored.id) or stored.tag


def _joined(values: Iterable[str]) -> str:
    """Return one string for `values`, different for different values; one value stays as it is."""
    parts = list(values)
    if len(parts) == 1:
        return parts[0]
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


KINDS: Final = {each.tag: each for each in _STORED}
_KIND_OF: Final = {cls: each for each in _STORED for cls in (each.record, each.forget) if cls}


class Damaged(CroupierError):
    """A record that differs from what was written. The text never quotes it."""


def checksum(*parts: bytes) -> int:
    """Return a CRC32 over `parts` and their lengths."""
    sum_of_all = 0
    for part in parts:
        sum_of_all = zlib.crc32(part, zlib.crc32(b"%d:" % len(part), sum_of_all))
    return sum_of_all


def sealed(key: bytes, value: bytes) -> bytes:
    """Return `value` with the checksum of key and value before it."""
    return b"%08x %s" % (checksum(key, value), value)


def unsealed(key: bytes, value: bytes) -> bytes:
    """Return the value that `sealed` was given; raises Damaged if the checksum does not match."""
    prefix, body = value[:PREFIX], value[PREFIX:]
    if prefix != b"%08x " % checksum(key, body):
        raise Damaged("its checksum does not match")
    return body


def converted(kind: str, body: str | bytes) -> Row:
    """Return the row of the record that `body` holds.

    Raises InvalidRequest if it is no such record; the text quotes nothing of it.
    """
    try:
        decode = _CODEC.decoder(KINDS[kind].record)
        return encode(cast("r.Record", decode(json.loads(body))))
    except Undecodable as error:
        raise InvalidRequest(f"not a record of the kind {kind!r}: {error}") from None
    except (ValueError, RecursionError, KeyError):
        raise InvalidRequest(f"not a record of the kind {kind[:80]!r}") from None


def converted_commit(data: bytes) -> list[Row]:
    """Return the rows of a staged commit.

    Raises zlib.error, ValueError, TypeError, InvalidRequest if it cannot be read.
    """
    return [
        Row(kind, row_id, None) if body is None else converted(kind, body)
        for kind, row_id, body in json.loads(zlib.decompress(data))
    ]
