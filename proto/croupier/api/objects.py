"""Objects from messages: the hints of a `TypedDict` say which fields they are made of.

Rule: a key is the field of its name, or the field of its name in another unit:

    grace_s     from grace_ms, in seconds
    share       from share_ppm, as a part of 1
    cpus        from cpus_milli
    expires     from expires_ms, as text in UTC

A key that may be None is None if the field is absent, or an empty text, or empty where absence
cannot be told.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints, is_typeddict

from croupier.api.times import time_text

_T = TypeVar("_T")
_Convert = Callable[[Any], Any]
_Made = TypeVar("_Made", bound=_Convert)

# What makes the objects that need more than their fields.
_MAKERS: dict[Any, _Convert] = {}


def makes(kind: Any) -> Callable[[_Made], _Made]:
    """Have the function make the objects of `kind` wherever they are part of another."""

    def register(make: _Made) -> _Made:
        _MAKERS[kind] = make
        return make

    return register


def as_object(kind: type[_T], /, *wires: Any, **given: Any) -> _T:
    """Return an object of `kind`.

    Args:
        kind: a `TypedDict`.
        wires: messages; a key is a field of the first of them that has it.
        given: the values of keys that are more than a field.

    Raises:
        TypeError: if a key is neither given nor a field.
    """
    plan = _plan(cast("Any", kind), tuple(each.DESCRIPTOR for each in wires), frozenset(given))
    found = {key: given[key] if read is None else read(wires[place]) for key, place, read in plan}
    return cast("_T", found)


@lru_cache(maxsize=256)
def _plan(
    kind: Any, messages: tuple[Any, ...], given: frozenset[str]
) -> list[tuple[str, int, _Convert | None]]:
    """Return the keys of an object; each with its message and what reads it, None if given."""
    return [
        (key, 0, None) if key in given else (key, *_field(kind, key, hint, messages))
        for key, hint in get_type_hints(kind).items()
    ]


def _field(kind: Any, key: str, hint: Any, messages: tuple[Any, ...]) -> tuple[int, _Convert]:
    names = {key: None, f"{key}_milli": None, f"{key}_ms": time_text, f"{key}_ppm": _millionths}
    if key.endswith("_s"):
        names[f"{key[:-2]}_ms"] = _thousandths
    for place, message in enumerate(messages):
        for name, convert in names.items():
            if name in message.fields_by_name:
                has_presence = message.fields_by_name[name].has_presence
                return place, _reader(hint, name, convert, has_presence=has_presence)
    raise TypeError(f"{key} of {kind.__name__} is no field")


def _reader(hint: Any, name: str, unit: _Convert | None, *, has_presence: bool) -> _Convert:
    """Return what reads a field of a message as a value of this type."""
    read = attrgetter(name)
    options = [each for each in get_args(hint) if each is not NoneType]
    if NoneType not in get_args(hint):
        convert = unit or _converter(hint)
        return read if convert is _same else lambda wire: convert(read(wire))
    convert = unit or _converter(options[0])
    if has_presence and (unit or hint != str | None):
        return lambda wire: convert(read(wire)) if wire.HasField(name) else None
    return lambda wire: convert(read(wire)) or None


def _converter(hint: Any) -> _Convert:
    """Return what makes a value of this type of a field."""
    if hint in _MAKERS:
        return _MAKERS[hint]
    if is_typeddict(hint):
        return lambda wire: as_object(hint, wire)
    if get_origin(hint) is list:
        each = _converter(get_args(hint)[0])
        return list if each is _same else lambda wires: [each(wire) for wire in wires]
    if get_origin(hint) is dict:
        return lambda found: dict(sorted(found.items()))
    return _same


def _same(value: Any) -> Any:
    return value


def _thousandths(value: int) -> float:
    return value / 1000


def _millionths(value: int) -> float:
    return value / 1_000_000
