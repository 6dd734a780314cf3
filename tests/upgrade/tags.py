"""The tags of all durable formats as text: `python -m tests.upgrade.tags` rewrites `tags.txt`.

Rule: a released line of that file never changes. A format may gain kinds, fields with a default
and enum members; it may lose a field if its tag is retired (`=tag`).
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from croupier.agent import record_lines
from croupier.agent.core.records import Record as CheckpointRecord
from croupier.master.core.effects import AccessChanged, Close, Happened, Save, Send
from croupier.master.eventlog.lines import FORMAT, LOGGED, Head, Known
from croupier.master.eventlog.tags import EVENT_LOG
from croupier.master.store.records_json import SCHEMA_VERSION, STORE
from croupier.model.codec import Codec
from croupier.model.resources import Resources
from croupier.model.tags import ERRORS, Table

LOCK = Path(__file__).with_name("tags.txt")
Roots = tuple[Any, ...]
FORMATS: dict[str, tuple[Table, Roots]] = {
    f"store {SCHEMA_VERSION}": (STORE, tuple(STORE.kinds.values())),
    f"checkpoint {record_lines.FORMAT}": (record_lines.CHECKPOINT, get_args(CheckpointRecord)),
    f"event log {FORMAT}": (
        EVENT_LOG,
        (Head, *get_args(Known), *LOGGED, Send, Close, Save, Happened, AccessChanged),
    ),
}


def recorded_classes(roots: Roots) -> list[type]:
    """Return all dataclasses and enums that records of these types can hold."""
    found: dict[type, None] = {}

    def add(hint: Any) -> None:
        hint = _plain(hint)
        for part in () if get_origin(hint) is Literal else get_args(hint):
            add(part)
        if not isinstance(hint, type) or hint in found or hint is Resources:
            return
        if issubclass(hint, Enum):
            found[hint] = None
        elif dataclasses.is_dataclass(hint):
            found[hint] = None
            hints = get_type_hints(hint)
            for field in dataclasses.fields(hint):
                if field.init:
                    add(hints[field.name])

    for root in roots:
        add(root)
    return list(found)


def as_text() -> str:
    """Return the text of `tags.txt`."""
    formats = [line for name in FORMATS for line in _format_lines(name)]
    return "\n".join([*formats, "# errors of all formats", *ERRORS, ""])


def _format_lines(name: str) -> Iterator[str]:
    table, roots = FORMATS[name]
    yield f"# {name}"
    classes = recorded_classes(roots)
    for title, owner in sorted((table.title(owner), owner) for owner in classes):
        yield title
        names = table.names(owner)
        if issubclass(owner, Enum):
            yield "    " + " ".join(names.tags.values())
        else:
            hints, codec = get_type_hints(owner), Codec(table)
            fields = {field.name: field for field in dataclasses.fields(owner)}  # type: ignore[arg-type]
            for attribute, tag in names.tags.items():
                default = _default(fields[attribute], codec.encoder(hints[attribute]))
                yield f"    {tag}: {_type(table, hints[attribute])}{default}"
        yield from (f"    {tag}: retired" for tag in sorted(names.retired))
    yield ""


def _default(field: dataclasses.Field[Any], encode: Any) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f" = {json.dumps(encode(field.default_factory()))}"
    if field.default is not dataclasses.MISSING:
        return f" = {json.dumps(encode(field.default))}"
    return ""


def _type(table: Table, hint: Any) -> str:
    """Return a type in terms of tags."""
    hint = _plain(hint)
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "|".join(map(str, sorted(parts)))
    if origin in (Union, types.UnionType):
        return "|".join(sorted(_type(table, part) for part in parts))
    if parts:
        inner = ", ".join("..." if part is Ellipsis else _type(table, part) for part in parts)
        return f"{'list' if origin is tuple else 'map'}[{inner}]"
    if hint in recorded_classes((hint,)):
        return table.title(hint)
    return "null" if hint is types.NoneType else str(hint.__name__)


def _plain(hint: Any) -> Any:
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    return hint


if __name__ == "__main__":
    LOCK.write_text(as_text())
