"""The calls and messages of the protocol, from the `.proto` files and their comments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from docs.site.reference.markdown import cell, paragraph, table

_PACKAGE: Final = ".croupier.v1."
_MESSAGES, _ENUMS, _SERVICES, _FIELDS, _METHODS, _VALUES = 4, 5, 6, 2, 2, 2
_NESTED, _NESTED_ENUMS = 3, 4
Path_ = tuple[int, ...]


def files(proto: Path) -> list[FileDescriptorProto]:
    """Return the described files of package `croupier.v1`, compiled by buf."""
    buf = Path(sys.executable).parent / "buf"
    built = subprocess.run(
        [buf, "build", proto, "-o", "-#format=binpb"], check=True, capture_output=True, timeout=60
    )
    found = FileDescriptorSet.FromString(built.stdout).file
    return sorted((each for each in found if each.package == "croupier.v1"), key=lambda f: f.name)


def calls(file: FileDescriptorProto) -> Iterator[str]:
    """Yield the sections of a file: services with their calls, messages, enums."""
    comments = _comments(file)
    for index, service in enumerate(file.service):
        path: Path_ = (_SERVICES, index)
        yield from ("", f"## {service.name}", "")
        yield from paragraph(comments.get(path, ""))
        rows = [
            (
                f"`{method.name}`",
                _call(method.input_type, is_stream=method.client_streaming),
                _call(method.output_type, is_stream=method.server_streaming),
                cell(comments.get((*path, _METHODS, number), "")),
            )
            for number, method in enumerate(service.method)
        ]
        yield from ("", *table(("Call", "Request", "Answer", "Meaning"), rows))
    for index, message in enumerate(file.message_type):
        yield from _message(message, (_MESSAGES, index), comments, "")
    for index, enum in enumerate(file.enum_type):
        yield from _enum(enum, (_ENUMS, index), comments, "")


def _comments(file: FileDescriptorProto) -> Mapping[Path_, str]:
    """Return the comment before each element, by the element's path in the file."""
    return {
        tuple(each.path): each.leading_comments or each.trailing_comments
        for each in file.source_code_info.location
    }


def _call(name: str, *, is_stream: bool) -> str:
    return f"{'stream of ' if is_stream else ''}`{_short(name)}`"


def _short(name: str) -> str:
    return name.removeprefix(_PACKAGE)


def _message(
    message: DescriptorProto, path: Path_, comments: Mapping[Path_, str], outer: str
) -> Iterator[str]:
    name = f"{outer}{message.name}"
    if message.options.map_entry:
        return
    yield from _head(name, comments.get(path, ""))
    if message.field:
        rows = [
            (
                f"`{field.name}`",
                str(field.number),
                _type(field, message),
                cell(comments.get((*path, _FIELDS, number), "")),
            )
            for number, field in enumerate(message.field)
        ]
        yield from ("", *table(("Field", "Tag", "Type", "Meaning"), rows))
    for index, nested in enumerate(message.nested_type):
        yield from _message(nested, (*path, _NESTED, index), comments, f"{name}.")
    for index, enum in enumerate(message.enum_type):
        yield from _enum(enum, (*path, _NESTED_ENUMS, index), comments, f"{name}.")


def _enum(
    enum: EnumDescriptorProto, path: Path_, comments: Mapping[Path_, str], outer: str
) -> Iterator[str]:
    yield from _head(f"{outer}{enum.name}", comments.get(path, ""))
    rows = [
        (f"`{value.name}`", str(value.number), cell(comments.get((*path, _VALUES, number), "")))
        for number, value in enumerate(enum.value)
    ]
    yield from ("", *table(("Value", "Number", "Meaning"), rows))


def _head(name: str, comment: str) -> Iterator[str]:
    yield from ("", f"### {name}")
    if comment:
        yield from ("", *paragraph(comment))


def _type(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    """Return a field's type as a `.proto` file writes it."""
    name = _short(field.type_name) or FieldDescriptorProto.Type.Name(field.type)[5:].lower()
    entries: Sequence[DescriptorProto] = [
        each for each in message.nested_type if field.type_name.endswith(f".{each.name}")
    ]
    if entries and entries[0].options.map_entry:
        key, value = (_type(each, entries[0]).strip("`") for each in entries[0].field)
        return f"`map of {key} to {value}`"
    is_repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
    prefix = "repeated " if is_repeated else "optional " if field.proto3_optional else ""
    return f"`{prefix}{name}`"
