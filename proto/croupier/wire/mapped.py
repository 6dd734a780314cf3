"""Conversion of dataclasses to messages whose fields have the same names, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple


class Both(NamedTuple):
    """A conversion in both directions."""

    to_wire: Callable[[Any], Any]
    from_wire: Callable[[Any], Any]


AS_IT_IS = Both(lambda value: value, lambda value: value)
TUPLE = Both(tuple, tuple)


def at_most(most: int) -> Both:
    """Return the conversion of a number that a peer may have made too large."""
    return Both(int, lambda number: min(number, most))


def mapped(
    cls: type, message: Any, names: Mapping[str, str] | None = None, **special: Both
) -> Both:
    """Return the conversion of a class; fields are converted as `special` says, or not at all.

    Fields with the default None are None if a message lacks them. `names` are the fields of the
    message that have other names than those of the class. Raises TypeError if class and message
    have not the same fields.
    """
    renamed = names or {}
    given = {each.name: each.default is None for each in fields(cls) if each.init}
    parts = [
        (name, renamed.get(name, name), special.get(name, AS_IT_IS), may_lack)
        for name, may_lack in given.items()
    ]
    if {tag for _, tag, _, _ in parts} != set(message.DESCRIPTOR.fields_by_name):
        raise TypeError(f"{cls.__name__} and {message.__name__} have not the same fields")

    def to_wire(value: Any) -> Any:
        wire = {}
        for name, tag, part, _ in parts:
            if (each := getattr(value, name)) is not None:
                wire[tag] = part.to_wire(each)
        return message(**wire)

    def from_wire(wire: Any) -> Any:
        return cls(
            *[
                None if may_lack and not wire.HasField(tag) else part.from_wire(getattr(wire, tag))
                for _, tag, part, may_lack in parts
            ]
        )

    return Both(to_wire, from_wire)


def many(part: Both) -> Both:
    """Return the conversion of a tuple of values."""
    return Both(
        lambda values: [part.to_wire(each) for each in values],
        lambda wires: tuple(part.from_wire(each) for each in wires),
    )
