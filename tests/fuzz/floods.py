"""Floods: messages of legal size with as many entries of one list as fit.

Rule: the lists come from the descriptors of the contract, so a new list is flooded without an edit.
An empty entry takes two bytes on the wire and far more in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from croupier.net.transport import TO_SERVER_BYTES
from tests.fuzz.contract import Method, all_methods, is_repeated

# Left of a message for the tags around the list.
_AROUND: Final = 64
_DELIMITED: Final = 2
# The largest call that a master decides.
CALL_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Flood:
    """One message.

    Attributes:
        name: of the list, from the request on, such as `calls.accept.offer_ids`.
    """

    method: Method
    name: str
    data: bytes


def varint(number: int) -> bytes:
    """Encode a number as protobuf does."""
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def delimited(number: int, body: bytes) -> bytes:
    """Return a field with a length."""
    return varint(number << 3 | _DELIMITED) + varint(len(body)) + body


def heartbeats(method: Method, size: int = TO_SERVER_BYTES) -> Iterator[Flood]:
    """Yield a message of heartbeats only, which ask for nothing, if the method has them."""
    for carrier in method.request.fields:
        if carrier.message_type and "heartbeat" in carrier.message_type.fields_by_name:
            beat = carrier.message_type.fields_by_name["heartbeat"]
            entry = delimited(carrier.number, delimited(beat.number, b""))
            yield Flood(method, f"{carrier.name}.heartbeat", entry * (size // len(entry)))


def list_floods(method: Method, size: int = TO_SERVER_BYTES) -> Iterator[Flood]:
    """Yield a flood of each list that a request of the method may have."""
    for path in _lists(method.request, ()):
        *around, last = path
        entry = _entry(last)
        body = entry * (max(0, size - _AROUND) // len(entry))
        for field in reversed(around):
            if field.message_type is not None and "seq" in field.message_type.fields_by_name:
                body = b"\x08\x01" + body
            body = delimited(field.number, body)
        yield Flood(method, ".".join(field.name for field in path), body)


def all_floods(size: int = TO_SERVER_BYTES) -> list[Flood]:
    """Return the floods of all methods."""
    methods = all_methods()
    beats = [flood for method in methods for flood in heartbeats(method, size)]
    return [*beats, *(flood for method in methods for flood in list_floods(method, size))]


def _entry(field: FieldDescriptor) -> bytes:
    if field.message_type or field.type in (field.TYPE_STRING, field.TYPE_BYTES):
        return delimited(field.number, b"")
    return delimited(field.number, b"\x01" * 100)


def _lists(
    kind: Descriptor, path: tuple[FieldDescriptor, ...]
) -> Iterator[tuple[FieldDescriptor, ...]]:
    """Yield the path of each list below a message; no type of the contract contains itself."""
    for field in kind.fields:
        if is_repeated(field):
            yield (*path, field)
        if field.message_type is not None:
            yield from _lists(field.message_type, (*path, field))
