"""The names in all durable formats as text: `python -m tests.upgrade.tags` rewrites `tags.txt`.

Rule: a released line of that file never changes. A message of `storage.proto` may gain fields with
new numbers. The event log may gain kinds, fields with a default and enum members.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from croupier.agent import record_lines
from croupier.master.core.effects import AccessChanged, Close, Happened, Save, Send
from croupier.master.eventlog.codec import NAMES
from croupier.master.eventlog.lines import FORMAT, LOGGED, Head, Known
from croupier.master.store.rows import KINDS, SCHEMA_VERSION
from croupier.model.codec import ERRORS, Codec
from croupier.model.resources import Resources
from croupier.v1 import storage_pb2
from croupier.v1.task_pb2 import TaskInfo

LOCK = Path(__file__).with_name("tags.txt")
Roots = tuple[Any, ...]
EVENT_LOG: Roots = (Head, *get_args(Known), *LOGGED, Send, Close, Save, Happened, AccessChanged)
CODEC = Codec(NAMES)


def stored_messages() -> list[Descriptor | EnumDescriptor]:
    """Return all messages and enums of stores and checkpoints, by name."""
    found: dict[str, Descriptor | EnumDescriptor] = {}

    def add(each: Descriptor | EnumDescriptor) -> None:
        if each.full_name in found:
            return
        found[each.full_name] = each
        for field in each.fields if isinstance(each, Descriptor) else ():
            if (part := field.message_type or field.enum_type) is not None:
                add(part)

    for message in storage_pb2.DESCRIPTOR.message_types_by_name.values():
        add(message)
    # Its bytes are a field of the records of tasks.
    add(TaskInfo.DESCRIPTOR)
    return [found[name] for name in sorted(found)]


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
    kinds = [f"{tag}: {kind.message.DESCRIPTOR.name}" for tag, kind in KINDS.items()]
    messages = [line for each in stored_messages() for line in _message_lines(each)]
    return "\n".join(
        (
            *(f"# store {SCHEMA_VERSION}", *kinds, ""),
            *(f"# messages of the store and of checkpoint {record_lines.FORMAT}", *messages, ""),
            *(f"# event log {FORMAT}", *_class_lines(recorded_classes(EVENT_LOG)), ""),
            *("# errors of the event log", *ERRORS, ""),
        )
    )


def _message_lines(owner: Descriptor | EnumDescriptor) -> Iterator[str]:
    yield owner.full_name.removeprefix("croupier.v1.")
    if isinstance(owner, EnumDescriptor):
        yield from (f"    {each.number} {each.name}" for each in owner.values)
    else:
        yield from (f"    {each.number} {each.name}: {_kind(each)}" for each in owner.fields)


def _kind(field: FieldDescriptor) -> str:
    part = field.message_type or field.enum_type
    name = _ATOMS[field.type] if part is None else part.full_name.removeprefix("croupier.v1.")
    return f"list[{name}]" if field.is_repeated else name


_ATOMS = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}


def _class_lines(classes: Iterable[type]) -> Iterator[str]:
    for title, owner in sorted((CODEC.name(owner), owner) for owner in classes):
        yield title
        if issubclass(owner, Enum):
            yield "    " + " ".join(CODEC.name(owner, each) for each in owner.__members__)
            continue
        hints = get_type_hints(owner)
        for field in dataclasses.fields(owner):  # type: ignore[arg-type]
            if field.init:
                default = _default(field, CODEC.encoder(hints[field.name]))
                yield f"    {CODEC.name(owner, field.name)}: {_type(hints[field.name])}{default}"


def _default(field: dataclasses.Field[Any], encode: Any) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f" = {json.dumps(encode(field.default_factory()))}"
    if field.default is not dataclasses.MISSING:
        return f" = {json.dumps(encode(field.default))}"
    return ""


def _type(hint: Any) -> str:
    """Return a type in terms of names."""
    hint = _plain(hint)
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "|".join(map(str, sorted(parts)))
    if origin in (Union, types.UnionType):
        return "|".join(sorted(map(_type, parts)))
    if parts:
        inner = ", ".join("..." if part is Ellipsis else _type(part) for part in parts)
        return f"{'list' if origin is tuple else 'map'}[{inner}]"
    return "null" if hint is types.NoneType else CODEC.name(hint)


def _plain(hint: Any) -> Any:
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    return hint


if __name__ == "__main__":
    LOCK.write_text(as_text())
