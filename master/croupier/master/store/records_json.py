"""Records as rows: a kind, an id and a JSON body. What all stores that last have in common.

Everything follows from the types in `core.records`. `TaskRecord` is of the kind `task`;
`ForgetTask` deletes one, and its fields, which the record has too, are the id of the kind.
A record that nothing forgets is known by its first field, or is the only one of its kind.

Fields that have their default are left out of a body, and are given it when they are not
there: a body of before a field was added reads as it did.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, NamedTuple, cast, get_args

from croupier.master.core.records import MasterRecord, Record
from croupier.model.codec import Codec, Decode, Encode, Undecodable
from croupier.model.errors import InvalidRequest

# Of rows, and of what they mean. 1: before there was a ledger of tasks. 2: before records had
# checksums and commits numbers.
SCHEMA_VERSION: Final = 3

# Kinds of which there is one record; its id is the kind.
SOLE: Final[frozenset[type]] = frozenset({MasterRecord})

_RECORD, _FORGET = "Record", "Forget"


class UnknownKind(InvalidRequest):
    """A record is of a kind that this release does not have: a newer one wrote it."""


class Row(NamedTuple):
    """One record as a store keeps it; without a body it takes the one of that id away."""

    kind: str
    id: str
    body: str | None


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    identity: tuple[str, ...]
    encode: Encode
    decode: Decode


def encode(record: Record) -> Row:
    """The row of `record`; for a `Forget`, the row to delete."""
    cls = type(record)
    kind = _KINDS[_kind_of(cls)]
    row_id = _joined(getattr(record, name) for name in kind.identity) or kind.name
    if cls.__name__.startswith(_FORGET):
        return Row(kind.name, row_id, None)
    return Row(kind.name, row_id, json.dumps(kind.encode(record), separators=(",", ":")))


def decode(kind: str, body: str | bytes) -> Record:
    """The record of the kind `kind` that `body` tells.

    Raises:
        UnknownKind: if this release has no such records.
        InvalidRequest: if it is no such record; says why, and quotes nothing of it.
    """
    known = _KINDS.get(kind)
    if known is None:
        raise UnknownKind(f"records of the kind {kind[:80]!r} are not known to this release")
    try:
        return cast("Record", known.decode(_as_it_is_now(kind, json.loads(body))))
    except Undecodable as error:
        raise InvalidRequest(f"not a record of the kind {kind!r}: {error}") from None
    except (ValueError, RecursionError):
        raise InvalidRequest(f"not a record of the kind {kind!r}: it is no JSON") from None


def _as_it_is_now(kind: str, told: Any) -> Any:
    # Of before frameworks had several roles: one `role`.
    if kind == "framework" and isinstance(told, dict) and "role" in told:
        role = told.pop("role")
        told["roles"] = told.get("roles") or [role]
    return told


def _joined(values: Iterator[object]) -> str:
    """One string that no other values give; a value alone stands as it is."""
    parts = [part for value in values for part in _parts(value)]
    if len(parts) == 1:
        return parts[0]
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def _parts(value: object) -> Iterator[str]:
    if is_dataclass(value):
        for field in fields(value):
            yield from _parts(getattr(value, field.name))
    elif isinstance(value, tuple):
        for each in value:
            yield from _parts(each)
    else:
        yield str(value)


def _kind_of(cls: type) -> str:
    noun = cls.__name__.removeprefix(_FORGET).removesuffix(_RECORD)
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", noun).lower()


def _kinds(codec: Codec, members: tuple[type, ...]) -> Mapping[str, _Kind]:
    forgets = {_kind_of(cls): cls for cls in members if cls.__name__.startswith(_FORGET)}
    kinds: dict[str, _Kind] = {}
    for cls in members:
        name = _kind_of(cls)
        if cls is forgets.get(name):
            continue
        assert name not in kinds, f"two kinds of records named {name}"
        identity = _identity(cls, forgets.get(name))
        assert all(hasattr(cls, each) for each in identity), f"{cls.__name__} lacks its own id"
        kinds[name] = _Kind(name, identity, codec.encoder(cls), codec.decoder(cls))
    assert forgets.keys() <= kinds.keys(), "something is forgotten that is never recorded"
    return kinds


def _identity(cls: Callable[..., object], forget: Callable[..., object] | None) -> tuple[str, ...]:
    if cls in SOLE:
        return ()
    if forget is not None:
        return tuple(field.name for field in fields(cast("Any", forget)))
    return (fields(cast("Any", cls))[0].name,)


_KINDS: Final = _kinds(Codec(), get_args(Record))
