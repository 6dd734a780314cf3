"""Records as rows: a kind, an id and a JSON body. All durable stores share this format.

`_STORED` is the table of kinds; the tags of fields are beside the records in `core.records` and
`core.access_records`. A `Forget` is stored by deleting the row of its id.

A body leaves out fields that have their default, so a body that was written before a field was
added has its old meaning.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, cast

from croupier.master.core import access_records as a
from croupier.master.core import records as r
from croupier.model.codec import Codec, Undecodable, UnknownTag
from croupier.model.errors import InvalidRequest
from croupier.model.tags import Kind, Table

# The version of the format. 1: without a ledger of tasks. 2: without checksums of records and
# numbers of commits.
SCHEMA_VERSION: Final = 3


class NewerRecord(InvalidRequest):
    """A record with a kind, field or value that only a newer release has."""


class Row(NamedTuple):
    """A record as a store keeps it; without a body, the row of that kind and id is deleted."""

    kind: str
    id: str
    body: str | None


class Stored(NamedTuple):
    """A kind of row.

    Attributes:
        tag: the name of the kind.
        record: the class of its records.
        id: the attributes that make the id of a row; empty for the only row of its kind.
        forget: the class that deletes a row; it has the same attributes.
    """

    tag: str
    record: type
    id: tuple[str, ...] = ()
    forget: type | None = None


_STORED: Final = (
    Stored("master", r.MasterRecord),
    Stored("agent", r.AgentRecord, ("agent_id",), r.ForgetAgent),
    Stored("framework", r.FrameworkRecord, ("framework_id",), r.ForgetFramework),
    Stored("role", r.RoleRecord, ("role",), r.ForgetRole),
    Stored("task", r.TaskRecord, ("framework_id", "task_id"), r.ForgetTask),
    Stored("group", a.GroupRecord, ("name",), a.ForgetGroup),
    Stored("rule", a.RuleRecord, ("name",), a.ForgetRule),
    Stored("token", a.TokenRecord, ("token_id",), a.ForgetToken),
    Stored("revoked_key", a.RevokedKeyRecord, ("key_id",), a.ForgetRevokedKey),
)
STORE: Final = Table(Kind(each.tag, each.record) for each in _STORED)


def encode(record: r.Record) -> Row:
    """Return the row of `record`; for a `Forget`, the row to delete."""
    cls = type(record)
    kind = _KIND_OF[cls]
    row_id = _joined(str(getattr(record, name)) for name in kind.id) or kind.tag
    if cls is kind.forget:
        return Row(kind.tag, row_id, None)
    return Row(kind.tag, row_id, json.dumps(_ENCODERS[cls](record), separators=(",", ":")))


def decode(kind: str, body: str | bytes) -> r.Record:
    """Return the record of the kind `kind` that `body` holds.

    Raises:
        NewerRecord: if a newer release wrote it.
        InvalidRequest: if it is not such a record; the text quotes nothing of it.
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise NewerRecord(f"records of the kind {kind[:80]!r} are not known to this release")
    try:
        return cast("r.Record", decoder(_upgraded(kind, json.loads(body))))
    except UnknownTag as error:
        raise NewerRecord(f"a record of the kind {kind!r}: {error}") from None
    except Undecodable as error:
        raise InvalidRequest(f"not a record of the kind {kind!r}: {error}") from None
    except (ValueError, RecursionError):
        raise InvalidRequest(f"not a record of the kind {kind!r}: it is no JSON") from None


def tag_of(record: type) -> str:
    """Return the kind of rows that hold records of a class."""
    return _KIND_OF[record].tag


def _upgraded(kind: str, body: Any) -> Any:
    # Before frameworks had several roles, they had one `role`.
    if kind == "framework" and isinstance(body, dict) and "role" in body:
        role = body.pop("role")
        body["roles"] = body.get("roles") or [role]
    return body


def _joined(values: Iterable[str]) -> str:
    """Return one string for `values`, different for different values; one value stays as it is."""
    parts = list(values)
    if len(parts) == 1:
        return parts[0]
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


_codec = Codec(STORE)
_KIND_OF: Final = {cls: each for each in _STORED for cls in (each.record, each.forget) if cls}
_ENCODERS: Final = {each.record: _codec.encoder(each.record) for each in _STORED}
_DECODERS: Final = {each.tag: _codec.decoder(each.record) for each in _STORED}
