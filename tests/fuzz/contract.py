"""Every service and method of the wire contract, from its descriptors.

Rule: nothing here names a service or a message, so a new one is fuzzed without an edit.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

import croupier.v1


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a service.

    Attributes:
        path: as in the `:path` header, such as `/croupier.v1.AgentService/Connect`.
        is_stream: whether requests and responses are streams.
    """

    path: str
    request: Descriptor
    response: Descriptor
    is_stream: bool


def contract_files() -> list[FileDescriptor]:
    """Return the descriptors of all `.proto` files."""
    names = sorted(each.name for each in pkgutil.iter_modules(croupier.v1.__path__))
    modules = [f"croupier.v1.{name}" for name in names if name.endswith("_pb2")]
    return [importlib.import_module(name).DESCRIPTOR for name in modules]


def all_methods() -> list[Method]:
    """Return the methods of all services, in the order of the files."""
    return [
        Method(
            f"/{service.full_name}/{method.name}",
            method.input_type,
            method.output_type,
            method.client_streaming,
        )
        for file in contract_files()
        for service in file.services_by_name.values()
        for method in service.methods
    ]


def all_messages() -> Iterator[Descriptor]:
    """Yield all message types, without the entries of maps."""
    waiting = [each for file in contract_files() for each in file.message_types_by_name.values()]
    while waiting:
        message = waiting.pop()
        if not message.GetOptions().map_entry:
            yield message
        waiting.extend(message.nested_types)


def is_repeated(field: FieldDescriptor) -> bool:
    """Return whether the field is a list or a map."""
    return bool(field.is_repeated)


def list_field(message: Descriptor) -> FieldDescriptor | None:
    """Return the field with the messages that a request carries; None if it is one message."""
    found = [each for each in message.fields if is_repeated(each) and each.message_type]
    return found[0] if len(found) == 1 else None
