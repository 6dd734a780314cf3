"""JSON objects, made of messages by their descriptors.

Rule: a key is the field of its name, or the field of its name in another unit:

    grace_s     from grace_ms, in seconds
    share       from share_ppm, as a part of 1; share_ppm is a key, too
    cpus        from cpus_milli

A key of an optional field is null if that is absent, or an empty text. `forms.py` and `shapes.py`
have all that is different.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from croupier.api import forms, shapes

Json = dict[str, Any]
_PLAIN: Final[dict[int, forms.Schema]] = {
    FieldDescriptor.CPPTYPE_BOOL: forms.BOOLEAN,
    FieldDescriptor.CPPTYPE_DOUBLE: forms.NUMBER,
    FieldDescriptor.CPPTYPE_STRING: forms.STRING,
}
_SECONDS: Final = forms.Form(forms.NUMBER, lambda milli: milli / 1000)
_PART_OF_1: Final = forms.Form(forms.NUMBER, lambda ppm: ppm / 1_000_000)
_PPM: Final = forms.Form(forms.INTEGER, about="the same in millionths.")


@dataclass(frozen=True, slots=True)
class Key:
    """A key of an object.

    Attributes:
        field: what it is made of; None: of the whole message.
        place: the part of the message that has the field, such as `task`; empty: itself.
    """

    name: str
    form: forms.Form
    field: FieldDescriptor | None = None
    place: str = ""
    is_nullable: bool = False


def as_object(message: Any) -> Json:
    """Return the JSON object of a message."""
    return {name: read(message) for name, read in _readers(message.DESCRIPTOR)}


@cache
def _readers(message: Descriptor) -> list[tuple[str, Callable[[Any], Any]]]:
    return [(key.name, _reader(key)) for key in keys_of(message)]


def _reader(key: Key) -> Callable[[Any], Any]:
    """Return a function that reads the value of a key from a message."""
    field, convert = key.field, key.form.convert
    if field is None:
        return lambda message: _in_json(convert(message))
    name = field.name
    read = attrgetter(f"{key.place}.{name}" if key.place else name)
    if not key.is_nullable:
        return read if convert is forms.as_it_is else lambda message: convert(read(message))
    if field.containing_oneof is None or field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return lambda message: convert(read(message)) or None
    part = attrgetter(key.place) if key.place else forms.as_it_is
    return lambda message: convert(read(message)) if part(message).HasField(name) else None


def _in_json(value: Any) -> Any:
    """Return a converted value, with the messages in it as objects."""
    if isinstance(value, Message):
        return as_object(value)
    return [_in_json(each) for each in value] if isinstance(value, list) else value


def shape_of(message: Descriptor) -> shapes.Shape:
    """Return how the object of a message differs from it."""
    return shapes.SHAPES.get(message.name) or shapes.Shape()


@cache
def keys_of(message: Descriptor) -> tuple[Key, ...]:
    """Return the keys of the object of a message in order; raises KeyError for unknown ones."""
    shape = shape_of(message)
    nullable, parts = shape.nullable.split(), shape.parts.split()
    found = {key.name: key for key in _fields_of(message, "")}
    own = [name for name in found if name not in parts]
    for place in parts:
        part: Any = message
        for name in place.split("."):
            part = part.fields_by_name[name].message_type
        found = {key.name: key for key in _fields_of(part, place)} | found
    found |= {name: Key(name, form) for name, form in shape.made.items()}
    named = dict(_named(each) for each in shape.keys.split())
    left_out = {*named.values(), *shape.without.split()}
    named |= {name: name for name in (*own, *shape.made) if name not in left_out}
    return tuple(
        replace(
            found[of],
            name=name,
            is_nullable=name in nullable or (found[of].is_nullable and shape.required is None),
        )
        for name, of in named.items()
    )


def _named(text: str) -> tuple[str, str]:
    name, _, of = text.partition("=")
    return name, of or name


def _fields_of(message: Descriptor, place: str) -> Iterator[Key]:
    for field in message.fields:
        # An optional field is the only one of its own `oneof`.
        is_nullable = field.containing_oneof is not None
        for name, form in _forms(field).items():
            yield Key(name, form, field, place, is_nullable)


def _forms(field: FieldDescriptor) -> dict[str, forms.Form]:
    """Return the keys of a field, each with its form."""
    name = field.name
    owner: Any = field.containing_type
    given = forms.FIELDS.get(f"{owner.name}.{name}")
    if given is not None:
        return {name.removesuffix("_ms"): given}
    if name.endswith("_ppm"):
        return {name.removesuffix("_ppm"): _PART_OF_1, name: _PPM}
    if name.endswith("_ms") and not forms.TIMES.search(name):
        return {name.removesuffix("_ms") + "_s": _SECONDS}
    return {name.removesuffix("_milli"): _form(field)}


def _form(field: FieldDescriptor) -> forms.Form:
    message: Any = field.message_type
    if message is not None and message.GetOptions().map_entry:
        values = _value(message.fields_by_name["value"])
        return forms.Form(forms.mapping(values.schema), lambda found: dict(sorted(found.items())))
    value = _value(field)
    if not field.is_repeated:
        return value
    convert = value.convert
    return forms.Form(
        forms.array(value.schema),
        list if convert is forms.as_it_is else lambda wires: [convert(wire) for wire in wires],
    )


def _value(field: FieldDescriptor) -> forms.Form:
    """Return the form of a field, or of each of its values."""
    message, kind = field.message_type, field.message_type or field.enum_type
    if kind is not None and kind.name in forms.TYPES:
        return forms.TYPES[kind.name]
    if message is not None:
        return forms.Form(message, as_object)
    return forms.Form(_PLAIN.get(field.cpp_type, forms.INTEGER))
