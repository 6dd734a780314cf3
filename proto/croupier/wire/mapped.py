"""Conversion of dataclasses to messages whose fields have the same names, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple


class Both(NamedTuple):
    """A conversion in both directions."""

    to_wire: Callable[[Any], Any]
    from_wire: Callable[[Any], Any]


AS_IT_IS = Both(lambda value: value, lambda value: value)
TUPLE = Both(tuple, tuple)


def mapped(cls: type, message: Any, **special: Both) -> Both:
    """Return the conversion of a class; fields are converted as `special` says, or not at all.

    Fields with the default None are None if a message lacks them.

    Raises:
        TypeError: if class and message have not the same fields.
    """
    known = message.DESCRIPTOR.fields_by_name
    given = {each.name: each.default is None for each in fields(cls) if each.init}
    if set(given) != set(known):
        raise TypeError(f"{cls.__name__} and {message.__name__} have not the same fields")
    parts = [(name, special.get(name, AS_IT_IS), may) for name, may in given.items()]

    def to_wire(value: Any) -> Any:
        wire = {}
        for name, part, _ in parts:
            if (each := getattr(value, name)) is not None:
                wire[name] = part.to_wire(each)
        return message(**wire)

    def from_wire(wire: Any) -> Any:
        return cls(
            *(
                None
                if may_lack and not wire.HasField(each)
                else part.from_wire(getattr(wire, each))
                for each, part, may_lack in parts
            )
        )

    return Both(to_wire, from_wire)


def many(part: Both) -> Both:
    """Return the conversion of a tuple of values."""
    return Both(
        lambda values: [part.to_wire(each) for each in values],
        lambda wires: tuple(part.from_wire(each) for each in wires),
    )
